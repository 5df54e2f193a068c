/** Sends decisions: repeats them while the server is busy, and says in words what came of each. */
import { ApiError } from "./api/client";
import { decide, winnerOf, type Answer, type Ticket } from "./api/tickets";
import { newId } from "./ids";

/** What is wrong with which part of an edited value, by JSON Pointer: `/lines/0`. */
export type Problems = Readonly<Record<string, string>>;

export const NO_PROBLEMS: Problems = {};

export type Outcome =
  | { kind: "decided"; votesMissing: number }
  /** Somebody was faster, or the ticket is over: the card is read again. */
  | { kind: "over"; text: string }
  /** The call isn't the one that was shown. */
  | { kind: "changed"; text: string }
  /** The person may not decide, or the answer is wrong: they can change it. */
  | { kind: "refused"; text: string; code: string; problems: Problems }
  | { kind: "not_sent"; text: string };

const TRIES = 4;
const FIRST_PAUSE = 600;

/** The ids of one card's decisions: the same answer keeps its id, so that it counts once. */
export class DecisionIds {
  private readonly ids = new Map<string, string>();

  of(answer: Answer): string {
    const key = JSON.stringify(answer);
    const id = this.ids.get(key) ?? newId();
    this.ids.set(key, id);
    return id;
  }
}

export async function sendDecision(ticket: Ticket, answer: Answer, ids: DecisionIds): Promise<Outcome> {
  const id = ids.of(answer);
  for (let tries = 1; ; tries++) {
    try {
      const { votesMissing } = await decide(ticket, answer, id);
      return { kind: "decided", votesMissing };
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (!error.isTemporary || tries === TRIES) return outcomeOf(error);
      await new Promise((resolve) => setTimeout(resolve, FIRST_PAUSE * tries));
    }
  }
}

export function outcomeOf(error: ApiError): Outcome {
  if (error.isTemporary) return { kind: "not_sent", text: `Not sent. ${error.detail}` };
  if (error.code === "args_digest_mismatch") {
    return { kind: "changed", text: "The call has changed since you read it. Read it again before you decide." };
  }
  if (error.code === "ticket_already_decided") {
    const winner = winnerOf(error.facts);
    return { kind: "over", text: winner ? `${winner.by} was faster: ${winner.action}.` : error.detail };
  }
  if (error.status === 410) return { kind: "over", text: error.detail };
  return { kind: "refused", text: error.detail, code: error.code, problems: problemsOf(error) };
}

function problemsOf({ code, facts }: ApiError): Problems {
  if (code !== "arguments_invalid" || !Array.isArray(facts["errors"])) return NO_PROBLEMS;
  const places = facts["errors"] as { at: string; problem: string }[];
  return Object.fromEntries(places.map(({ at, problem }) => [at, problem]));
}
