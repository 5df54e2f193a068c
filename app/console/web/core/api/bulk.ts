/** Decisions about tickets of several runs. */
import type { ActionRequest } from "./runActions";
import { request, type Schemas } from "./client";
import { winnerOf, type Ticket } from "./tickets";

export interface BulkAnswer {
  action: "approve" | "reject";
  reason: string;
}

/** What came of one ticket: null if it was decided, else why not. */
export type BulkResults = ReadonlyMap<string, string | null>;

export function bulkRequest(tickets: readonly Ticket[], { action, reason }: BulkAnswer, ids: ReadonlyMap<string, string>): ActionRequest {
  const decisions = tickets.map((ticket) => ({
    ticket_id: ticket.id,
    action,
    args_digest: ticket.digest,
    decision_id: ids.get(ticket.id)!,
    ...(reason ? { reason } : {}),
  }));
  return { path: "/v1/decisions", body: { decisions } };
}

export async function decideAll({ path, body }: ActionRequest): Promise<BulkResults> {
  const { runs } = await request<Schemas["DecisionsOfRuns"]>("POST", path, { body });
  const results = new Map<string, string | null>();
  for (const run of runs) for (const id of run.ticket_ids) results.set(id, run.error && problemOf(run.error));
  return results;
}

function problemOf(error: Record<string, unknown>): string {
  const winner = winnerOf(error);
  return winner ? `${winner.by} was faster: ${winner.action}` : String(error["detail"] ?? "refused");
}
