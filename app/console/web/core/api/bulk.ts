/** Decisions about tickets of several runs. */
import { request, type Schemas } from "./client";
import { winnerOf, type Ticket } from "./tickets";

export interface BulkAnswer {
  action: "approve" | "reject";
  reason: string;
}

/** What came of one ticket: null if it was decided, else why not. */
export type BulkResults = ReadonlyMap<string, string | null>;

export async function decideAll(tickets: readonly Ticket[], { action, reason }: BulkAnswer, ids: ReadonlyMap<string, string>): Promise<BulkResults> {
  const decisions = tickets.map((ticket) => ({
    ticket_id: ticket.id,
    action,
    args_digest: ticket.digest,
    decision_id: ids.get(ticket.id)!,
    ...(reason ? { reason } : {}),
  }));
  const { runs } = await request<Schemas["DecisionsOfRuns"]>("POST", "/v1/decisions", { body: { decisions } });
  const results = new Map<string, string | null>();
  for (const run of runs) for (const id of run.ticket_ids) results.set(id, run.error && problemOf(run.error));
  return results;
}

function problemOf(error: Record<string, unknown>): string {
  const winner = winnerOf(error);
  return winner ? `${winner.by} was faster: ${winner.action}` : String(error["detail"] ?? "refused");
}
