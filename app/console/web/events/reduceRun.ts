/** A run's conversation as a pure function of its snapshot and the events that follow. */
import { messageOf, resultOf, type Json, type Message, type ToolResult } from "../core/api/messages";
import type { OpenCall, Snapshot } from "../core/api/runs";
import { ticketOf, type Ticket } from "../core/api/tickets";
import type { Frame } from "../core/streams/sse";

/** The answer that is being streamed. */
export interface OpenMessage {
  text: string;
  reasoning: string;
  calls: OpenCall[];
}

interface Content {
  messages: Message[];
  open: OpenMessage | null;
  /** Results and streamed output, by call. */
  results: Record<string, ToolResult>;
  output: Record<string, string>;
}

export interface RunState extends Content {
  tickets: Ticket[];
  lastSeq: number;
  /** Events that changed something since the snapshot, without the pieces of texts. */
  seen: number;
  /** What a `stream_reset` goes back to: the content before the step began. */
  beforeStep: Content;
  /** Times at which the record of the run has changed. */
  recordVersion: number;
  /** Times at which the log has changed in a way that the events don't tell. */
  logVersion: number;
  isExecuting: boolean;
}

interface RunEvent {
  event_type: string;
  delta?: string;
  tool_call_id?: string;
  name?: string;
  args_delta?: string;
  arguments?: Json;
  message?: Parameters<typeof messageOf>[0];
  result?: { text?: string; status?: string; data?: Json };
  ticket?: Parameters<typeof ticketOf>[0];
  ticket_id?: string;
  action?: string;
  decided_by?: string;
  reason?: string;
  ts?: string;
}

/** Of a run, or of a thread: that has a run only while one occupies it. */
export function stateOf(snapshot: Omit<Snapshot, "run"> & { run: Pick<Snapshot["run"], "status"> | null }): RunState {
  const spoken = new Set(snapshot.messages.flatMap(({ calls }) => calls.map(({ id }) => id)));
  const openCalls = snapshot.openCalls.filter(({ id }) => !spoken.has(id));
  const log: Content = {
    messages: snapshot.messages,
    open: null,
    results: resultsOf(snapshot.messages),
    output: {},
  };
  const isOpen = snapshot.openText !== "" || openCalls.length > 0;
  return {
    ...log,
    open: isOpen ? { text: snapshot.openText, reasoning: "", calls: openCalls } : null,
    tickets: snapshot.tickets,
    lastSeq: snapshot.lastEventId,
    seen: 0,
    beforeStep: log,
    recordVersion: 0,
    logVersion: 0,
    isExecuting: snapshot.run?.status === "running",
  };
}

export function reduceRun(state: RunState, frames: readonly Frame[]): RunState {
  let now = state;
  for (const frame of frames) {
    const seq = Number(frame.id);
    if (seq <= now.lastSeq) continue;
    const event = JSON.parse(frame.data) as RunEvent;
    const next = reduceOne(now, event);
    const isNew = next !== now && !event.event_type.endsWith("_delta");
    now = { ...next, lastSeq: seq, seen: now.seen + (isNew ? 1 : 0) };
  }
  return now;
}

/** One event, without a look at its place in the stream. */
export function reduceOne(state: RunState, event: RunEvent): RunState {
  switch (event.event_type) {
    case "step_start":
      return { ...state, beforeStep: contentOf(state), open: EMPTY, isExecuting: true };
    case "text_delta":
      return changeOpen(state, (open) => ({ ...open, text: open.text + (event.delta ?? "") }));
    case "reasoning_delta":
      return changeOpen(state, (open) => ({ ...open, reasoning: open.reasoning + (event.delta ?? "") }));
    case "tool_call_start":
    case "tool_call_delta":
    case "tool_call_ready":
    case "tool_call_cancel":
      return changeOpen(state, (open) => ({ ...open, calls: reduceCalls(open.calls, event) }));
    case "message_done":
      return spoken(state, messageOf(event.message!));
    case "stream_reset":
      return { ...state, ...state.beforeStep, open: null };
    case "tool_call_stream_delta":
      return {
        ...state,
        output: { ...state.output, [event.tool_call_id!]: (state.output[event.tool_call_id!] ?? "") + event.delta },
      };
    case "tool_call_done":
    case "tool_call_resumed":
      return { ...state, results: { ...state.results, [event.tool_call_id!]: resultOf(event.result ?? {}) } };
    default:
      return reduceStatus(state, event);
  }
}

/** Events about the run itself, its tickets and its inputs. */
function reduceStatus(state: RunState, event: RunEvent): RunState {
  const changed = { ...state, recordVersion: state.recordVersion + 1 };
  switch (event.event_type) {
    case "run_start":
      return { ...changed, isExecuting: true };
    case "run_finish":
      return { ...changed, open: null, isExecuting: false };
    case "step_end":
    case "run_created":
    case "cancel_requested":
    case "pause_requested":
    case "pause_ended":
    case "rollback_requested":
      return changed;
    case "ticket_opened":
    case "ticket_voted":
    case "ticket_decided":
    case "ticket_expired":
    case "ticket_void":
      return { ...changed, tickets: reduceTickets(state.tickets, event) };
    case "input_delivered":
    case "rolled_back":
      return { ...changed, logVersion: state.logVersion + 1 };
    default:
      return state;
  }
}

const EMPTY: OpenMessage = { text: "", reasoning: "", calls: [] };

function contentOf({ messages, results, output }: RunState): Content {
  return { messages, open: null, results, output };
}

function changeOpen(state: RunState, change: (open: OpenMessage) => OpenMessage): RunState {
  return { ...state, open: change(state.open ?? EMPTY) };
}

function spoken(state: RunState, message: Message): RunState {
  const isKnown = state.messages.some(({ seq }) => seq === message.seq);
  return { ...state, open: null, messages: isKnown ? state.messages : [...state.messages, message] };
}

function reduceCalls(calls: OpenCall[], event: RunEvent): OpenCall[] {
  const id = event.tool_call_id!;
  if (event.event_type === "tool_call_cancel") return calls.filter((call) => call.id !== id);
  const known = calls.find((call) => call.id === id);
  const call = known ?? { id, name: event.name ?? "", text: "", arguments: undefined };
  const next = {
    ...call,
    text: call.text + (event.args_delta ?? ""),
    arguments: event.arguments === undefined ? call.arguments : event.arguments,
  };
  return known ? calls.map((one) => (one.id === id ? next : one)) : [...calls, next];
}

const ENDS: Record<string, Ticket["status"]> = {
  ticket_decided: "decided",
  ticket_expired: "expired",
  ticket_void: "void",
};

function reduceTickets(tickets: Ticket[], event: RunEvent): Ticket[] {
  if (event.event_type === "ticket_opened") {
    const wire = event.ticket;
    if (!wire?.id || tickets.some(({ id }) => id === wire.id)) return tickets;
    const at = event.ts ?? new Date(0).toISOString();
    return [...tickets, ticketOf({ ...wire, status: "open", created_at: at, decision: null })];
  }
  const status = ENDS[event.event_type];
  return status ? tickets.map((one) => (one.id === event.ticket_id ? { ...one, status } : one)) : tickets;
}

function resultsOf(messages: readonly Message[]): Record<string, ToolResult> {
  const found: Record<string, ToolResult> = {};
  // A suspended call has two messages; the later one has its result.
  for (const { callId, result, text } of messages) {
    if (callId) found[callId] = result ?? { text, status: "succeeded", data: undefined, edited: null };
  }
  return found;
}
