import assert from "node:assert/strict";
import { test } from "node:test";
import { reduceRun, stateOf, type RunState } from "../events/reduceRun";
import { messageOf, type Message } from "../core/api/messages";
import type { Run, Snapshot } from "../core/api/runs";

const said = (seq: number, text: string, more: Partial<Message> = {}): Message => ({
  seq, id: `m${seq}`, role: "assistant", text, media: [], calls: [], callId: null, result: null, cutShort: null,
  isHidden: false, rolledBackBy: null, runId: "r", step: 0, at: null, ...more,
});
const wire = (seq: number, text: string) => ({ seq, id: `m${seq}`, role: "assistant", content: [{ type: "text", text }] });
const snapshot = (more: Partial<Snapshot> = {}): Snapshot => ({
  run: { status: "running" } as Run, messages: [], openText: "", openCalls: [], tickets: [], lastEventId: 10, ...more,
});

/** Frames with ids from `first` on. */
function frames(first: number, ...events: object[]) {
  return events.map((event, at) => ({ id: String(first + at), data: JSON.stringify(event) }));
}
const step = { event_type: "step_start" };
const text = (delta: string) => ({ event_type: "text_delta", delta });
const done = (seq: number, whole: string) => ({ event_type: "message_done", message: wire(seq, whole) });
const texts = (state: RunState) => [...state.messages.map((one) => one.text), state.open?.text];

test("a streamed answer becomes the message of the log", () => {
  const open = reduceRun(stateOf(snapshot()), frames(11, step, text("Hel"), text("lo")));
  assert.deepEqual(texts(open), ["Hello"]);
  assert.deepEqual(texts(reduceRun(open, frames(14, done(2, "Hello")))), ["Hello", undefined]);
});

test("frames that were seen before change nothing", () => {
  const events = frames(11, step, text("once"));
  const state = reduceRun(stateOf(snapshot()), events);
  assert.equal(reduceRun(state, events), state);
});

test("the stream continues the snapshot's open answer", () => {
  const state = reduceRun(stateOf(snapshot({ openText: "Hel" })), frames(11, text("lo")));
  assert.deepEqual(texts(state), ["Hello"]);
});

test("a takeover forgets all of the step, and what the snapshot had of it", () => {
  const first = stateOf(snapshot({ messages: [said(1, "kept")], openText: "lost" }));
  const reset = { event_type: "stream_reset", reason: "takeover" };
  assert.deepEqual(texts(reduceRun(first, frames(11, text(" too"), reset))), ["kept", undefined]);
  const second = reduceRun(first, frames(11, done(2, "step one"), step, text("void"), reset, step, text("again")));
  assert.deepEqual(texts(second), ["kept", "step one", "again"]);
});

test("a message that the snapshot has already isn't shown twice", () => {
  const state = reduceRun(stateOf(snapshot({ messages: [said(2, "Hello")] })), frames(11, done(2, "Hello")));
  assert.deepEqual(texts(state), ["Hello", undefined]);
});

test("calls grow, are cancelled, and get their results", () => {
  const state = reduceRun(
    stateOf(snapshot()),
    frames(
      11,
      step,
      { event_type: "tool_call_start", tool_call_id: "a", name: "refund" },
      { event_type: "tool_call_delta", tool_call_id: "a", args_delta: '{"x":' },
      { event_type: "tool_call_start", tool_call_id: "b", name: "gone" },
      { event_type: "tool_call_cancel", tool_call_id: "b" },
      { event_type: "tool_call_ready", tool_call_id: "a", name: "refund", arguments: { x: 1 } },
      { event_type: "tool_call_stream_delta", tool_call_id: "a", delta: "work" },
      { event_type: "tool_call_done", tool_call_id: "a", result: { text: "waits", status: "waiting" } },
      { event_type: "tool_call_resumed", tool_call_id: "a", result: { text: "paid", status: "done", outcome: "succeeded" } },
    ),
  );
  assert.deepEqual(state.open!.calls, [{ id: "a", name: "refund", text: '{"x":', arguments: { x: 1 } }]);
  assert.equal(state.output["a"], "work");
  assert.deepEqual(state.results["a"], { text: "paid", status: "succeeded", data: undefined, edited: null });
});

test("a message without text has only its calls", () => {
  const message = { seq: 2, id: "m2", role: "assistant", tool_calls: [{ tool_call_id: "a", name: "refund", arguments: {} }] };
  const state = reduceRun(stateOf(snapshot()), frames(11, step, { event_type: "message_done", message }));
  assert.deepEqual(state.messages[0]!.calls, [{ id: "a", name: "refund", arguments: {} }]);
});

test("the later message of a suspended call has its result and what a person edited", () => {
  const tool = { role: "tool", callId: "a" };
  const waits = said(3, "waits", { ...tool, result: { text: "waits", status: "waiting", data: undefined, edited: null } });
  const paid = messageOf({ seq: 4, id: "m4", role: "tool", tool_call_id: "a", content: [], result: { status: "done", outcome: "succeeded", text: "paid" }, edited_arguments: { amount: 7 } } as unknown as Parameters<typeof messageOf>[0]);
  assert.deepEqual(stateOf(snapshot({ messages: [waits, paid] })).results["a"], { text: "paid", status: "succeeded", data: undefined, edited: { amount: 7 } });
});

test("tickets open once and end", () => {
  const ticket = { id: "t", run_id: "r", tool_name: "refund", arguments: {}, allowed_actions: [] };
  const opened = { event_type: "ticket_opened", ticket, ts: "2026-01-02T03:04:05Z" };
  const state = reduceRun(
    stateOf(snapshot()),
    frames(11, opened, opened, { event_type: "ticket_decided", ticket_id: "t" }),
  );
  assert.deepEqual(state.tickets.map(({ id, status }) => [id, status]), [["t", "decided"]]);
});

test("unknown events are counted and change nothing else", () => {
  const before = stateOf(snapshot());
  assert.deepEqual(reduceRun(before, frames(11, { event_type: "from_the_future" })), { ...before, lastSeq: 11 });
  assert.equal(reduceRun(before, frames(11, text("a"), text("b"), { event_type: "run_start" })).seen, 1);
});

test("what changes the record or the log asks for it again", () => {
  const state = reduceRun(
    stateOf(snapshot()),
    frames(11, { event_type: "run_start" }, { event_type: "input_delivered" }, { event_type: "run_finish" }),
  );
  assert.deepEqual([state.recordVersion, state.logVersion, state.isExecuting], [3, 1, false]);
});
