/** A row of the inbox. */
import type { Ticket } from "../../core/api/tickets";
import type { JsonObject } from "../../core/api/messages";
import { isObject, pretty } from "../../core/json";
import { shortened } from "../../core/text";
import { age, duration, fullTime } from "../../core/time";
import { pageUrl } from "../../core/url";
import { Icon } from "../Icon";
import { Effect } from "./Effect";
import { TicketStatusMark, wordOf } from "../Status";
import { SafeText } from "../Text";

interface TicketRowProps {
  ticket: Ticket;
  isChosen: boolean;
  isSelected?: boolean;
  now: Date;
  onChoose(id: string): void;
}

const FIRST_ARGUMENTS = 3;
const SOON_SECONDS = 15 * 60;

export function TicketRow({ ticket, isChosen, isSelected = false, now, onChoose }: TicketRowProps) {
  const isOpen = ticket.status === "open";
  const choose = (event: MouseEvent) => {
    // Other presses open a tab, as for any link.
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    onChoose(ticket.id);
  };
  return (
    <a
      class={`ticket-row ${isOpen ? "" : "over"} ${isSelected ? "is-selected" : ""}`}
      href={pageUrl.ticket(ticket.id)}
      data-ticket={ticket.id}
      onClick={choose}
      {...(isChosen ? { "aria-current": "true" as const } : {})}
    >
      <span class={isOpen ? "wait" : "quiet"}>
        {isSelected && <span class="unseen">Selected: </span>}
        <Icon name={isSelected ? "ok" : isOpen ? "person" : ticket.decision ? "ok" : "cancelled"} />
      </span>
      <span class="name cut">
        <SafeText text={nameOf(ticket)} />
      </span>
      <span class="quiet tiny number" title={fullTime(ticket.createdAt)}>
        {age(ticket.createdAt, now)}
      </span>
      {summary(ticket) && (
        <span class="detail small quiet cut">
          <SafeText text={summary(ticket)} />
        </span>
      )}
      <span class="detail row tiny">
        <span class="quiet">
          {ticket.agentId}
          {ticket.lineage?.parentId && ` for ${ticket.lineage.rootAgent}`}
        </span>
        <Effect ticket={ticket} />
        {isOpen ? <Hints ticket={ticket} now={now} /> : <Result ticket={ticket} />}
      </span>
    </a>
  );
}

function Hints({ ticket, now }: { ticket: Ticket; now: Date }) {
  const left = ticket.expiresAt ? (ticket.expiresAt.getTime() - now.getTime()) / 1000 : null;
  const { approvers, votes, mayDecide } = ticket;
  const quorum = approvers?.quorum ?? 1;
  return (
    <>
      {quorum > 1 && (
        <span class="quiet" title={votes.map(({ by }) => `${by} said yes`).join(", ")}>
          {votes.length}/{quorum} votes
        </span>
      )}
      {/* A key without the scope could decide none of them: the card says so. */}
      {approvers && mayDecide?.reason && (
        <span class="quiet" title={mayDecide.reason}>
          not by you
        </span>
      )}
      {left !== null && (
        <span class={left < SOON_SECONDS ? "warn" : "quiet"}>{left > 0 ? `expires in ${duration(left)}` : "expires now"}</span>
      )}
    </>
  );
}

function Result({ ticket }: { ticket: Ticket }) {
  if (!ticket.decision) return <TicketStatusMark status={ticket.status} decision={null} />;
  return (
    <span>
      {wordOf(ticket.decision.action)} by {ticket.decision.by}
    </span>
  );
}

export function nameOf(ticket: Ticket): string {
  switch (ticket.kind) {
    case "limit":
      return "Limit reached";
    case "outcome_unknown":
      return `Did ${ticket.tool} happen?`;
    case "input":
      return ticket.message || `Question of ${ticket.tool}`;
    case "event":
      return `Waits for ${ticket.event?.name ?? "a signal"}`;
    default:
      return ticket.tool;
  }
}

/** The first arguments, or what else tells rows apart. */
function summary(ticket: Ticket): string {
  if (ticket.kind === "limit") return ticket.message;
  const said = ticket.message === nameOf(ticket) ? "" : ticket.message;
  if (!isObject(ticket.arguments)) return said;
  // Short values say more than the beginning of a list.
  const [lists, values] = [true, false].map((isList) => Object.entries(ticket.arguments as JsonObject).filter(([, value]) => (typeof value === "object" && value !== null) === isList));
  const shown = [...values!, ...lists!].slice(0, FIRST_ARGUMENTS);
  return shown.map(([name, value]) => `${name} ${shortened(plain(value), 60).text}`).join(", ") || said;
}

function plain(value: unknown): string {
  return (typeof value === "string" ? value : pretty(value)).replace(/\s+/g, " ");
}
