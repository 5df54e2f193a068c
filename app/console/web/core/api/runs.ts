/** Runs: their record, the snapshot that a stream continues, and why they stand still. */
import { callOf, messageOf, type Json, type JsonObject, type Message } from "./messages";
import { ticketOf, type Ticket } from "./tickets";
import { request, type Schemas } from "./client";

export interface Meter {
  name: string;
  used: number;
  limit: number | null;
}

/** What a row of a table shows. */
export interface RunRow {
  id: string;
  threadId: string;
  agentId: string;
  agentVersion: string;
  parentId: string | null;
  /** The run that this one retries. */
  retryOf: string | null;
  rootId: string;
  status: "created" | "running" | "waiting" | "done";
  outcome: string | null;
  waitingReason: string | null;
  needsDecision: boolean;
  /** Open tickets of the run itself that a person decides. Only lists have their number. */
  openTickets: number;
  isCancelling: boolean;
  /** Whether it is paused, or will be at its next step. */
  isPaused: boolean;
  startedBy: string;
  steps: number;
  inputTokens: number;
  outputTokens: number;
  executedSeconds: number;
  /** US dollars, as far as prices are known. */
  cost: number;
  createdAt: Date;
  startedAt: Date | null;
  finishedAt: Date | null;
  updatedAt: Date;
}

export interface Run extends RunRow {
  termination: { type: string; code: string | null; detail: string | null } | null;
  pausedBy: string | null;
  rolledBackBy: string | null;
  meters: Meter[];
  metadata: JsonObject;
}

export interface OpenCall {
  id: string;
  name: string;
  /** The text of the arguments so far, then the whole value. */
  text: string;
  arguments: Json | undefined;
}

export interface Snapshot {
  run: Run;
  messages: Message[];
  openText: string;
  openCalls: OpenCall[];
  tickets: Ticket[];
  lastEventId: number;
}

export interface Explanation {
  reasons: { code: string; text: string }[];
  queuePosition: number | null;
  activeRunId: string | null;
  owner: { host: string; pid: number; isAlive: boolean; lastHeartbeatAt: Date } | null;
  nextAttemptAt: Date | null;
  failure: { code: string; detail: string } | null;
  below: { id: string; agentId: string; status: string; depth: number }[];
}

export async function readRun(id: string, signal?: AbortSignal): Promise<Run> {
  return runOf(await request<Schemas["Run"]>("GET", path(id), withSignal(signal)));
}

export async function readSnapshot(id: string, signal?: AbortSignal): Promise<Snapshot> {
  const wire = await request<Schemas["Snapshot"]>("GET", `${path(id)}/snapshot`, withSignal(signal));
  return {
    run: runOf(wire.run),
    messages: wire.messages.map(messageOf),
    openText: wire.open_text,
    openCalls: wire.open_tool_calls.map(openCallOf),
    tickets: wire.tickets.map(ticketOf),
    lastEventId: wire.last_event_id,
  };
}

export async function explainRun(id: string, signal?: AbortSignal): Promise<Explanation> {
  const wire = await request<Schemas["Explanation"]>("GET", `${path(id)}/explain`, withSignal(signal));
  return {
    reasons: wire.reasons,
    queuePosition: wire.queue_position,
    activeRunId: wire.active_run_id,
    owner: wire.owner && {
      host: wire.owner.host,
      pid: wire.owner.pid,
      isAlive: wire.owner.is_alive,
      lastHeartbeatAt: new Date(wire.owner.last_heartbeat_at),
    },
    nextAttemptAt: wire.next_attempt_at ? new Date(wire.next_attempt_at) : null,
    failure: wire.last_failure,
    below: wire.below.map((one) => ({ id: one.id, agentId: one.agent_id, status: one.status, depth: one.depth })),
  };
}

export function eventsPath(id: string): string {
  return `${path(id)}/events`;
}

export function runOf(wire: Schemas["Run"]): Run {
  const termination = wire.termination as { type?: string; code?: string; detail?: string } | null;
  return {
    ...rowOf(wire),
    termination: termination && {
      type: termination.type ?? "",
      code: termination.code ?? null,
      detail: termination.detail ?? null,
    },
    pausedBy: wire.pause ? wire.pause.requested_by : null,
    rolledBackBy: wire.rolled_back_by_run_id,
    meters: metersOf(wire),
    metadata: wire.metadata as JsonObject,
  };
}

export function rowOf(wire: Schemas["Run"] | Schemas["RunSummary"]): RunRow {
  const waiting = wire.waiting as { reason?: string; needs_decision?: boolean } | null;
  return {
    id: wire.id,
    threadId: wire.thread_id,
    agentId: wire.agent_id,
    agentVersion: wire.agent_version,
    parentId: wire.parent_run_id,
    retryOf: wire.retry_of_run_id,
    rootId: wire.root_run_id,
    status: wire.status,
    outcome: wire.outcome,
    waitingReason: waiting?.reason ?? null,
    needsDecision: waiting?.needs_decision ?? false,
    openTickets: "open_tickets" in wire ? wire.open_tickets : 0,
    isCancelling: wire.cancel_requested_at !== null && wire.status !== "done",
    isPaused: wire.status !== "done" && (waiting?.reason === "manual_pause" || ("pause" in wire && wire.pause !== null)),
    startedBy: wire.started_by,
    steps: wire.steps,
    inputTokens: wire.input_tokens,
    outputTokens: wire.output_tokens,
    executedSeconds: wire.used.wall_seconds,
    cost: wire.used.cost_usd,
    createdAt: new Date(wire.created_at),
    startedAt: wire.started_at ? new Date(wire.started_at) : null,
    finishedAt: wire.finished_at ? new Date(wire.finished_at) : null,
    updatedAt: new Date(wire.updated_at),
  };
}

function metersOf({ used, limits }: Schemas["Run"]): Meter[] {
  return [
    { name: "steps", used: used.steps, limit: limits?.steps ?? null },
    { name: "tokens", used: used.tokens, limit: limits?.tokens ?? null },
    { name: "tool calls", used: used.tool_calls, limit: limits?.tool_calls ?? null },
  ];
}

export function openCallOf(wire: Record<string, unknown>): OpenCall {
  const { id, name, arguments: text } = callOf(wire);
  return { id, name, text: typeof text === "string" ? text : "", arguments: undefined };
}

function path(id: string): string {
  return `/v1/runs/${encodeURIComponent(id)}`;
}

function withSignal(signal: AbortSignal | undefined) {
  return signal ? { signal } : {};
}
