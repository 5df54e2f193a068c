/** What was decided about a run's calls, by whom, and what came of it. */
import { ticketOf, type Action, type Ticket } from "./tickets";
import { request, type Schemas } from "./client";
import type { Json } from "./messages";

export interface Attempt {
  id: string;
  action: Action;
  by: string;
  at: Date;
  reason: string | null;
  payload: Json;
  /** `decided`, `voted` or `refused`. */
  effect: string;
  refusal: string | null;
}

export interface AuditCase {
  ticket: Ticket;
  attempts: Attempt[];
}

export interface AuditPage {
  cases: AuditCase[];
  next: string | null;
}

type AuditQuery = { ticket_id?: string; cursor?: string };

export async function readAudit(runId: string, query: AuditQuery, signal?: AbortSignal): Promise<AuditPage> {
  const path = `/v1/runs/${encodeURIComponent(runId)}/audit`;
  const page = await request<Schemas["AuditCasePage"]>("GET", path, { query, ...(signal ? { signal } : {}) });
  return { cases: page.items.map(caseOf), next: page.has_more ? page.next_cursor : null };
}

function caseOf(one: Schemas["AuditCase"]): AuditCase {
  return {
    ticket: ticketOf(one.blocked),
    attempts: one.decisions.map((attempt) => ({
      id: attempt.id,
      action: attempt.action as Action,
      by: attempt.decided_by,
      at: new Date(attempt.decided_at),
      reason: attempt.reason,
      payload: attempt.payload as Json,
      effect: attempt.effect,
      refusal: attempt.refusal,
    })),
  };
}
