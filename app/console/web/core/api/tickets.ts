/** Tickets and decisions. */
import { messageOf, type Json, type JsonObject, type Message } from "./messages";
import { request, type Schemas } from "./client";

export type Action = "approve" | "edit" | "respond" | "reject" | "cancel";
export type TicketStatus = "open" | "decided" | "expired" | "void";

export interface Decision {
  id: string;
  action: Action;
  payload: Json;
  reason: string | null;
  by: string;
  at: Date;
}

export interface Ticket {
  id: string;
  runId: string;
  threadId: string;
  agentId: string;
  kind: string;
  status: TicketStatus;
  callId: string | null;
  tool: string;
  /** `read`, `idempotent` or `unsafe`; null if the ticket is about no call of a tool. */
  effect: string | null;
  arguments: Json;
  digest: string;
  actions: Action[];
  responseSchema: JsonObject | null;
  /** Whether the running tool asks: `ctx.approve` or `ctx.ask`. Such answers can't be remembered. */
  isQuestionOfTool: boolean;
  message: string;
  evidence: JsonObject | null;
  event: { name: string; key: string } | null;
  approvers: { scope: string | null; notStarter: boolean; quorum: number } | null;
  /** Approvals that count toward the quorum. */
  votes: readonly Vote[];
  /** Whether this person may decide, and why not. Null if only an event told of the ticket. */
  mayDecide: { allowed: boolean; reason: string | null } | null;
  /** Who started its run, and the runs above it. Null as before. */
  lineage: Lineage | null;
  expiresAt: Date | null;
  onExpiry: string | null;
  decision: Decision | null;
  createdAt: Date;
}

export interface TicketDetail extends Ticket {
  startedBy: string;
  mayDecide: NonNullable<Ticket["mayDecide"]>;
  agentVersion: string;
  agentDescription: string;
  toolDescription: string;
  parameters: JsonObject | null;
  lastMessages: Message[];
  similar: { id: string; arguments: Json; isSame: boolean; decision: Decision | null }[];
}

export interface Vote {
  by: string;
  action: Action;
  reason: string | null;
  at: Date;
}

export interface Lineage {
  startedBy: string;
  /** Null for a run that no other run has started. */
  parentId: string | null;
  rootId: string;
  rootAgent: string;
}

export async function readTicket(id: string, signal?: AbortSignal): Promise<TicketDetail> {
  const path = `/v1/tickets/${encodeURIComponent(id)}`;
  return detailOf(await request<Schemas["TicketDetail"]>("GET", path, signal ? { signal } : {}));
}

export interface Answer {
  action: Action;
  arguments?: JsonObject;
  result?: Json;
  reason?: string;
  remember?: string;
}

export interface DecisionResult {
  isDuplicate: boolean;
  votesMissing: number;
  by: string;
}

/** Decide a ticket. `decisionId` makes repetitions harmless; the digest binds the decision to what was shown. */
export async function decide(
  ticket: Pick<Ticket, "id" | "runId" | "digest">,
  answer: Answer,
  decisionId: string,
): Promise<DecisionResult> {
  const { body, path } = decisionRequest(ticket, answer, decisionId);
  const decided = await request<Schemas["Decided"]>("POST", path, { body });
  const result = decided.results[0]!;
  return {
    isDuplicate: result.status === "duplicate",
    votesMissing: result.votes_missing,
    by: result.decided_by,
  };
}

export function decisionRequest(
  ticket: Pick<Ticket, "id" | "runId" | "digest">,
  answer: Answer,
  decisionId: string,
): { path: string; body: { decisions: Schemas["DecisionRequest"][] } } {
  const decision = {
    ticket_id: ticket.id,
    ...answer,
    args_digest: ticket.digest,
    decision_id: decisionId,
  } as Schemas["DecisionRequest"];
  return { path: `/v1/runs/${ticket.runId}/decisions`, body: { decisions: [decision] } };
}

/** The decision that came first, from the facts of a 409. */
export function winnerOf(facts: Readonly<Record<string, unknown>>): { by: string; action: string } | null {
  const winner = facts["winner"] as { decided_by?: string; action?: string } | undefined;
  return winner?.decided_by ? { by: winner.decided_by, action: winner.action ?? "" } : null;
}

export function ticketOf(wire: Schemas["Ticket"]): Ticket {
  return {
    id: wire.id,
    runId: wire.run_id,
    threadId: wire.thread_id,
    agentId: wire.agent_id,
    kind: wire.kind,
    status: wire.status,
    callId: wire.tool_call_id,
    tool: wire.tool_name,
    effect: wire.tool_effect ?? null,
    arguments: wire.arguments as Json,
    digest: wire.args_digest,
    actions: wire.allowed_actions as Action[],
    responseSchema: wire.response_schema as JsonObject | null,
    isQuestionOfTool: wire.reason === "tool:Approve" || wire.reason === "tool:Ask",
    message: wire.message,
    evidence: wire.evidence as JsonObject | null,
    event: wire.event,
    approvers: wire.approvers && {
      // Events leave out the parts of the rule that are not set.
      scope: wire.approvers.scope ?? null,
      notStarter: wire.approvers.not_starter ?? false,
      quorum: wire.approvers.quorum ?? 1,
    },
    votes: [],
    mayDecide: null,
    lineage: null,
    expiresAt: wire.expires_at ? new Date(wire.expires_at) : null,
    onExpiry: wire.on_expiry,
    decision: decisionOf(wire.decision),
    createdAt: new Date(wire.created_at),
  };
}

/** A ticket of a list, which has more than an event tells. */
export function listedTicketOf(wire: Schemas["ListedTicket"]): Ticket & Pick<TicketDetail, "mayDecide"> {
  const { lineage } = wire;
  return {
    ...ticketOf(wire),
    votes: wire.votes.map((vote) => ({
      by: vote.decided_by,
      action: vote.action as Action,
      reason: vote.reason,
      at: new Date(vote.decided_at),
    })),
    mayDecide: wire.may_decide,
    lineage: {
      startedBy: lineage.started_by,
      parentId: lineage.parent_run_id,
      rootId: lineage.root_run_id,
      rootAgent: lineage.root_agent_id,
    },
  };
}

function decisionOf(wire: Schemas["Decision"] | null): Decision | null {
  return (
    wire && {
      id: wire.id,
      action: wire.action as Action,
      payload: wire.payload as Json,
      reason: wire.reason,
      by: wire.decided_by,
      at: new Date(wire.decided_at),
    }
  );
}

function detailOf(wire: Schemas["TicketDetail"]): TicketDetail {
  return {
    ...listedTicketOf(wire),
    startedBy: wire.run.started_by,
    agentVersion: wire.run.agent_version,
    agentDescription: wire.agent_description,
    toolDescription: wire.tool?.description ?? "",
    parameters: (wire.tool?.parameters as JsonObject | undefined) ?? null,
    lastMessages: wire.last_messages.map(messageOf),
    similar: wire.similar.map((one) => ({
      id: one.id,
      arguments: one.arguments as Json,
      isSame: one.same_arguments,
      decision: decisionOf(one.decision),
    })),
  };
}
