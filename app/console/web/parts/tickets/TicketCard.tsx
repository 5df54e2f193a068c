/** One ticket with all that a person needs to decide it. */
import { useState } from "preact/hooks";
import type { Me } from "../../core/api/session";
import type { Ticket, TicketDetail } from "../../core/api/tickets";
import type { Outcome } from "../../core/decisions";
import { isObject } from "../../core/json";
import { shortId } from "../../core/ids";
import { ago, clockTime, duration, fullTime, useNow } from "../../core/time";
import { pageUrl } from "../../core/url";
import { DecisionForm } from "./DecisionForm";
import { Evidence, LimitEvidence } from "./Evidence";
import { History } from "./History";
import { Effect } from "./Effect";
import { Arguments, FOLD_BYTES } from "../JsonView";
import { LastMessages } from "./LastMessages";
import { TicketStatusMark, wordOf } from "../Status";
import { SafeText } from "../Text";
import { pretty } from "../../core/json";

interface TicketCardProps {
  ticket: TicketDetail;
  me: Me | null;
  /** Grows with each change that the stream shows. */
  version: number;
  notice: Outcome | null;
  onOutcome(outcome: Outcome): void;
  /** Whether the card is in its run's conversation, which has the messages already. */
  isInRun?: boolean;
}

export function TicketCard({ ticket, me, version, notice, onOutcome, isInRun = false }: TicketCardProps) {
  const [wasShown, setShown] = useState(pretty(ticket.arguments).length <= FOLD_BYTES);
  // The call of a child is right above its card.
  const hasArguments = !(isInRun && ticket.kind === "child") && !(isObject(ticket.arguments) && !Object.keys(ticket.arguments).length);
  return (
    <article class="card" aria-label={titleOf(ticket)}>
      <Head ticket={ticket} />
      {ticket.kind === "outcome_unknown" && ticket.evidence && <Evidence evidence={ticket.evidence} asked={ticket.arguments} />}
      {ticket.kind === "limit" && ticket.evidence && isObject(ticket.arguments) && (
        <LimitEvidence evidence={ticket.evidence} reached={ticket.arguments} />
      )}
      {hasArguments && ticket.kind !== "limit" && (
        <section aria-label="Arguments">
          <h2>Arguments</h2>
          <Arguments value={ticket.arguments} schema={ticket.parameters} onUnfold={() => setShown(true)} />
        </section>
      )}
      <Terms ticket={ticket} />
      {!isInRun && <LastMessages messages={ticket.lastMessages} />}
      <Similar ticket={ticket} />
      <History ticket={ticket} version={version} />
      {notice && <Notice outcome={notice} />}
      {ticket.status === "open" ? (
        <DecisionForm ticket={ticket} me={me} wasShown={wasShown} onOutcome={onOutcome} />
      ) : (
        <Over ticket={ticket} isInRun={isInRun} />
      )}
    </article>
  );
}

export function titleOf(ticket: Ticket): string {
  switch (ticket.kind) {
    case "limit":
      return `${ticket.agentId} has reached a limit`;
    case "outcome_unknown":
      return `Did ${ticket.tool} take effect?`;
    case "input":
      return ticket.message || `${ticket.agentId} asks`;
    case "event":
      return `${ticket.agentId} waits for ${ticket.event?.name ?? "a signal"}`;
    case "child":
      return `${ticket.agentId} waits for ${ticket.tool.replace(/^agent_run_/, "")}`;
    case "auth":
      return `${ticket.agentId} needs access for ${ticket.tool}`;
    case "frontend":
      return `${ticket.tool} runs in an application`;
    default:
      return `${ticket.agentId} wants to run ${ticket.tool}`;
  }
}

/** Sentences of the runtime that only repeat the title. */
const IS_USUAL = /^(Permission required for tool '.*'|Tool '.*' suspended: awaiting approval)$/;

/** The first characters of a version, which is a digest. */
export function versionOf(version: string): string {
  return version.replace(/^sha256:/, "").slice(0, 7);
}

function Head({ ticket }: { ticket: TicketDetail }) {
  const now = useNow();
  return (
    <header>
      <h1>
        <SafeText text={titleOf(ticket)} />
        <Effect ticket={ticket} />
      </h1>
      {ticket.message && ticket.kind !== "input" && !IS_USUAL.test(ticket.message) && (
        <p>
          <SafeText text={ticket.message} />
        </p>
      )}
      {ticket.toolDescription && <p class="quiet small">{ticket.toolDescription}</p>}
      <p class="row small quiet">
        <span title={fullTime(ticket.createdAt)}>{ago(ticket.createdAt, now)}</span>
        <span>
          started by <SafeText text={ticket.startedBy} />
        </span>
        <a href={pageUrl.run(ticket.runId, { ticket: ticket.id })}>run {shortId(ticket.runId)}</a>
        {ticket.lineage?.parentId && (
          <a href={pageUrl.run(ticket.lineage.rootId)}>
            for {ticket.lineage.rootAgent}, run {shortId(ticket.lineage.rootId)}
          </a>
        )}
        <span class="mono tiny">
          {ticket.agentId}@{versionOf(ticket.agentVersion)}
        </span>
      </p>
    </header>
  );
}

const ON_EXPIRY: Record<string, string> = {
  reject: "then the model is told that no decision came",
  cancel_run: "then the run is cancelled",
  keep: "then the ticket stays open",
};

function Terms({ ticket }: { ticket: TicketDetail }) {
  const now = useNow();
  const { approvers, expiresAt, votes, event } = ticket;
  if (!approvers && !expiresAt && !event) return null;
  const left = expiresAt ? (expiresAt.getTime() - now.getTime()) / 1000 : 0;
  return (
    <dl class="facts">
      {event && [<dt key="event">Signal</dt>, <dd key="event:value"><code>{event.name}</code> {event.key && <>with key <code>{event.key}</code></>}</dd>]}
      {expiresAt && [
        <dt key="expiry">Expires</dt>,
        <dd key="expiry:value" class={left < 300 && ticket.status === "open" ? "warn" : ""}>
          {clockTime(expiresAt, now)}
          {ticket.status === "open" && (left > 0 ? ` (in ${duration(left)})` : " (now)")}, {ON_EXPIRY[ticket.onExpiry ?? ""] ?? ""}
        </dd>,
      ]}
      {approvers && [
        <dt key="who">Approvers</dt>,
        <dd key="who:value">
          {approvers.scope ? <>holders of <code>{approvers.scope}</code></> : "everyone with decisions:write"}
          {approvers.quorum > 1 && `, ${approvers.quorum} of them`}
          {approvers.notStarter && `; not ${ticket.startedBy}, who started the run`}
          {votes.map((vote) => (
            <span key={vote.by}>
              {" · "}
              <b>{vote.by}</b> said yes
            </span>
          ))}
        </dd>,
      ]}
    </dl>
  );
}

function Similar({ ticket }: { ticket: TicketDetail }) {
  if (!ticket.similar.length) return null;
  const counts = new Map<string, number>();
  for (const { decision } of ticket.similar) {
    const word = decision ? wordOf(decision.action) : "not decided";
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  const same = ticket.similar.find((one) => one.isSame && one.decision);
  return (
    <p class="small quiet">
      Similar calls before: {[...counts].map(([word, count]) => `${count} ${word}`).join(", ")}.
      {same?.decision && ` One with the same arguments was ${wordOf(same.decision.action)} by ${same.decision.by}.`}
    </p>
  );
}

function Notice({ outcome }: { outcome: Outcome }) {
  if (outcome.kind === "refused" || outcome.kind === "not_sent") return null;
  if (outcome.kind === "decided") {
    const missing = outcome.votesMissing;
    const text = missing
      ? `Your vote counts. ${missing} more ${missing === 1 ? "person has" : "people have"} to approve.`
      : "Your decision is stored. The run continues.";
    return (
      <p class="notice ok" role="status">
        {text}
      </p>
    );
  }
  return (
    <p class="notice warn" role="status">
      {outcome.text}
    </p>
  );
}

function Over({ ticket, isInRun }: { ticket: TicketDetail; isInRun: boolean }) {
  const now = useNow();
  const { decision } = ticket;
  return (
    <p class="notice row">
      <TicketStatusMark status={ticket.status} decision={decision?.action ?? null} />
      {decision && (
        <span>
          by <b>{decision.by}</b>, <time title={fullTime(decision.at)}>{clockTime(decision.at, now)}</time>
          {decision.reason && (
            <>
              : “<SafeText text={decision.reason} />”
            </>
          )}
        </span>
      )}
      {!isInRun && <a href={pageUrl.run(ticket.runId)}>Open the run</a>}
    </p>
  );
}
