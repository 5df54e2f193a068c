/** The decisions that a ticket offers, in words that fit its kind. */
import type { Action, TicketDetail } from "./api/tickets";
import { isObject } from "./json";

export interface Choice {
  action: Action;
  label: string;
  key: string;
  /** What the decision does. */
  effect: string;
  tone: "primary" | "danger" | "usual";
}

const KEYS: Record<Action, string> = { approve: "a", edit: "e", reject: "r", respond: "s", cancel: "d" };
const ORDER: readonly Action[] = ["approve", "edit", "respond", "reject", "cancel"];
const TONES: Record<Action, Choice["tone"]> = {
  approve: "primary",
  edit: "usual",
  respond: "usual",
  reject: "danger",
  cancel: "usual",
};

type Words = Partial<Record<Action, readonly [label: string, effect: string] | null>>;

export function choicesOf(ticket: TicketDetail): Choice[] {
  const words: Words = { ...usual(ticket), ...ofKind(ticket) };
  const isAnswer = ticket.kind === "input" || ticket.kind === "frontend";
  const order = ticket.kind === "outcome_unknown" ? ([...ORDER].sort(respondFirst) as Action[]) : ORDER;
  return order.flatMap((action) => {
    const word = words[action];
    if (!word || !ticket.actions.includes(action)) return [];
    const tone = isAnswer && action === "respond" ? "primary" : TONES[action];
    return [{ action, label: word[0], key: KEYS[action], effect: word[1], tone: plainIfUnknown(ticket, tone) }];
  });
}

function usual(ticket: TicketDetail): Words {
  return {
    approve: ["Approve", `Runs ${ticket.tool} with exactly these arguments.`],
    edit: ["Edit", `Runs ${ticket.tool} with your arguments. The model sees what you changed.`],
    respond: ["Respond", `Doesn’t run ${ticket.tool}. Your text is its result.`],
    reject: ["Reject", "Doesn’t run the call. The model reads your reason and continues."],
    cancel: ["Drop call", "Doesn’t run the call. The run continues without its result."],
  };
}

function ofKind(ticket: TicketDetail): Words {
  switch (ticket.kind) {
    case "outcome_unknown":
      return {
        respond: ["It happened: enter the result", "Doesn’t run the call again. What you enter is its result."],
        approve: ["Run it again", "Runs the call a second time. If the first took effect, it takes effect twice."],
        cancel: ["Drop the call", "Doesn’t run the call again. The run continues without its result."],
      };
    case "limit":
      return {
        approve: [`Raise by ${raiseBy(ticket)}`, "The run continues with the raised limit."],
        edit: ["Raise by another amount", "The run continues with the limit raised by your amount."],
        reject: ["End the run", "The run ends at this limit."],
        respond: null,
        cancel: null,
      };
    case "input":
    case "frontend":
      return {
        respond: ["Answer", "Your answer is the result of the call."],
        reject: ["Refuse", "No answer. The model reads your reason and continues."],
        approve: null,
        edit: null,
      };
    case "event":
      return { respond: ["Answer in its place", "The run continues with your answer instead of the signal."] };
    default:
      return {};
  }
}

export function raiseBy(ticket: { arguments: unknown }): string {
  return isObject(ticket.arguments) ? String(ticket.arguments["raise_by"] ?? "") : "";
}

function respondFirst(one: Action, other: Action): number {
  return Number(other === "respond") - Number(one === "respond");
}

/** A second execution is never the suggested choice. */
function plainIfUnknown(ticket: TicketDetail, tone: Choice["tone"]): Choice["tone"] {
  return ticket.kind === "outcome_unknown" && tone === "primary" ? "danger" : tone;
}

/** The schema of `edit`: the tool's parameters, or that of a limit's raise. */
export function editSchema(ticket: TicketDetail) {
  return ticket.kind === "limit" ? ticket.responseSchema : ticket.parameters;
}
