/** What a run did and when, from its events: spans of work, waits between them, and marks of single moments. */
import type { BackgroundTask } from "../core/api/backgroundTasks";
import type { ListedEvent } from "../core/api/events";
import { wordOf } from "../parts/Status";

/** A stretch of time. */
export interface Piece {
  start: number;
  end: number;
}

export interface Span {
  id: string;
  kind: "model" | "tool" | "task" | "wait";
  label: string;
  step: number | null;
  start: number;
  /** Null while it lasts. */
  end: number | null;
  /** How it ended, if not well. */
  problem: string | null;
  detail: string;
  /** When the model's first output came. */
  firstToken: number | null;
  /** When the call was executed before its run waited, for example until it asked for an approval. */
  earlier: readonly Piece[];
}

export interface Mark {
  at: number;
  seq: number;
  kind: "takeover" | "decision" | "request";
  text: string;
}

export interface Timeline {
  spans: Span[];
  marks: Mark[];
  start: number;
  /** The time of the last event. */
  end: number;
}

interface Reading extends Timeline {
  model: Span | null;
  wait: Span | null;
  calls: Map<string, Span>;
  /** Calls that wait, and continue in the same row. */
  waitingCalls: Map<string, Span>;
  names: Map<string, string>;
  executesSince: number | null;
}

const WAITS: Record<string, string> = {
  tool_permission: "waits for an approval",
  user_input: "waits for an answer",
  background_tasks: "waits for tasks",
  child_runs: "waits for agents",
  rate_limit: "waits for a rate limit",
  external_event: "waits for a signal",
  manual_pause: "paused",
  agent_version_unavailable: "waits for its version",
};

/** The timeline with the background tasks of the run below its steps. */
export function withTasks(timeline: Timeline, tasks: readonly BackgroundTask[]): Timeline {
  const spans = tasks.map((task): Span => {
    const start = (task.startedAt ?? task.createdAt).getTime();
    const problem = task.outcome === null || task.outcome === "succeeded" ? null : task.outcome;
    const detail = [task.error, task.attempt > 1 ? `attempt ${task.attempt}` : ""].filter(Boolean).join(", ");
    return { id: `task:${task.id}`, kind: "task", label: task.tool, step: null, start, end: task.finishedAt?.getTime() ?? null, problem, detail, firstToken: null, earlier: [] };
  });
  const end = Math.max(timeline.end, ...spans.map((span) => span.end ?? span.start));
  return { ...timeline, spans: [...timeline.spans, ...spans], end };
}

export function timelineOf(events: readonly ListedEvent[]): Timeline {
  const reading: Reading = {
    spans: [],
    marks: [],
    start: events[0]?.at.getTime() ?? 0,
    end: events.at(-1)?.at.getTime() ?? 0,
    model: null,
    wait: null,
    calls: new Map(),
    waitingCalls: new Map(),
    names: new Map(),
    executesSince: null,
  };
  for (const event of events) read(reading, event, event.at.getTime());
  const { spans, marks, start, end } = reading;
  return { spans, marks, start, end };
}

function read(now: Reading, event: ListedEvent, at: number): void {
  const { wire } = event;
  const call = String(wire["tool_call_id"] ?? "");
  switch (event.type) {
    case "run_created":
      if (wire["status"] !== "running") now.wait = begin(now, event, "wait", "queued", at);
      return;
    case "run_start":
      if (now.executesSince !== null) cut(now, event, at, "taken over");
      now.wait = finish(now.wait, at);
      now.executesSince = at;
      return;
    case "step_start":
      now.model = begin(now, event, "model", "model", at);
      return;
    case "inference_complete":
      now.model ??= begin(now, event, "model", "model", at - Number(wire["duration_ms"] ?? 0));
      now.model.label = String(wire["model"] ?? "model");
      now.model.detail = [firstTokenOf(wire), tokensOf(wire["usage"])].filter(Boolean).join(", ");
      // Retries lie between the step's start and the call that has answered.
      if (typeof wire["first_token_ms"] === "number") now.model.firstToken = at - Number(wire["duration_ms"]) + wire["first_token_ms"];
      now.model = finish(now.model, at);
      return;
    case "tool_call_ready":
      now.names.set(call, String(wire["name"]));
      now.calls.set(call, begin(now, event, "tool", String(wire["name"]), at));
      return;
    case "tool_call_done":
    case "tool_call_resumed":
    case "tool_call_cancel":
      return endCall(now, event, call, at);
    case "stream_reset":
      return cut(now, event, at, String(wire["reason"] ?? "taken over"));
    case "run_finish":
      return endActivation(now, event, at);
    default:
      return mark(now, event, at);
  }
}

function begin(now: Reading, { seq, step }: ListedEvent, kind: Span["kind"], label: string, start: number): Span {
  const span: Span = { id: `${kind}${seq}`, kind, label, step, start, end: null, problem: null, detail: "", firstToken: null, earlier: [] };
  now.spans.push(span);
  return span;
}

function finish(span: Span | null, at: number, problem: string | null = null): null {
  if (span && span.end === null) {
    span.end = at;
    span.problem = problem;
  }
  return null;
}

function endCall(now: Reading, event: ListedEvent, call: string, at: number): void {
  const result = event.wire["result"] as { status?: string; outcome?: string } | undefined;
  const status = event.type === "tool_call_cancel" ? "cancelled" : (result?.outcome ?? result?.status ?? "succeeded");
  // A call that had waited continues when its run does.
  const span = now.calls.get(call) ?? again(now, call, at) ?? begin(now, event, "tool", now.names.get(call) ?? "tool", now.executesSince ?? at);
  now.calls.delete(call);
  if (status === "waiting") now.waitingCalls.set(call, span);
  const { started_at: started, duration_ms: duration } = event.wire;
  if (typeof started === "string") span.start = Date.parse(started);
  // The event comes when the result is stored, which may be later.
  const end = typeof started === "string" && typeof duration === "number" ? span.start + duration : at;
  finish(span, end, status === "succeeded" ? null : status);
}

/** The row of a call that had waited. */
function again(now: Reading, call: string, at: number): Span | null {
  const span = now.waitingCalls.get(call);
  if (!span) return null;
  now.waitingCalls.delete(call);
  span.earlier = [...span.earlier, { start: span.start, end: span.end ?? at }];
  span.start = now.executesSince ?? at;
  span.end = null;
  return span;
}

function endActivation(now: Reading, event: ListedEvent, at: number): void {
  const isWaiting = event.wire["status"] === "waiting";
  const ended = isWaiting ? null : String(event.wire["outcome"] ?? "ended");
  now.model = finish(now.model, at, ended);
  for (const span of now.calls.values()) finish(span, at, ended);
  now.calls.clear();
  now.executesSince = null;
  if (!isWaiting) now.wait = finish(now.wait, at);
  else {
    const reason = (event.wire["waiting"] as { reason?: string } | null)?.reason ?? "";
    now.wait = begin(now, event, "wait", WAITS[reason] ?? "waits", at);
  }
}

/** The worker was lost: what it had begun is cut, and begins again. */
function cut(now: Reading, event: ListedEvent, at: number, reason: string): void {
  now.model = finish(now.model, at, "cut");
  for (const span of now.calls.values()) finish(span, at, "cut");
  now.calls.clear();
  if (now.marks.at(-1)?.at !== at) now.marks.push({ at, seq: event.seq, kind: "takeover", text: reason.replaceAll("_", " ") });
}

function mark(now: Reading, { type, seq, wire }: ListedEvent, at: number): void {
  const by = String(wire["decided_by"] ?? wire["requested_by"] ?? wire["ended_by"] ?? "");
  const words: Record<string, () => [Mark["kind"], string]> = {
    ticket_decided: () => ["decision", `${by}: ${wordOf(String(wire["action"]))}`],
    ticket_voted: () => ["decision", `${by} votes: ${wordOf(String(wire["action"]))}`],
    ticket_expired: () => ["decision", "ticket expired"],
    cancel_requested: () => ["request", `${by} cancels`],
    pause_requested: () => ["request", `${by} pauses`],
    pause_ended: () => ["request", `${by} resumes`],
    input_delivered: () => ["request", "message read"],
    inference_retry: () => ["request", "model called again"],
  };
  const found = words[type]?.();
  if (found) now.marks.push({ at, seq, kind: found[0], text: found[1] });
}

function firstTokenOf(wire: ListedEvent["wire"]): string {
  const taken = wire["first_token_ms"];
  return typeof taken === "number" ? `first output after ${taken} ms` : "";
}

function tokensOf(usage: unknown): string {
  const total = (usage as { total_tokens?: number } | undefined)?.total_tokens;
  return total === undefined ? "" : `${total} tokens`;
}
