import assert from "node:assert/strict";
import { test } from "node:test";
import { eventOf } from "../core/api/events";
import type { Json, Message } from "../core/api/messages";
import type { Run } from "../core/api/runs";
import type { RunState } from "../events/reduceRun";
import { agentStateAt, stateAt } from "../events/replay";
import { summaryOf } from "../events/summary";
import { ticksOf, timeScale } from "../events/timeScale";
import { timelineOf, withTasks } from "../events/timeline";
import { treeOf } from "../events/tree";

let seq = 0;
const event = (second: number, event_type: string, more: Record<string, Json> = {}) =>
  eventOf({ seq: ++seq, ts: new Date(second * 1000).toISOString(), event_type, ...more });
const call = (id: string, more: Record<string, Json> = {}) => ({ tool_call_id: id, ...more });

/** Two seconds of work, a wait of an hour, one second of work. */
const waited = () => [
  event(0, "run_created", { status: "running" }),
  event(0, "run_start"),
  event(0, "step_start", { step: 1 }),
  event(1, "inference_complete", { step: 1, model: "m", usage: { total_tokens: 8 } }),
  event(1, "tool_call_ready", call("c", { name: "refund", step: 1 })),
  event(2, "tool_call_done", call("c", { result: { status: "waiting" } })),
  event(2, "run_finish", { status: "waiting", waiting: { reason: "tool_permission" } }),
  event(3602, "ticket_decided", { decided_by: "ben", action: "approve" }),
  event(3602, "run_start"),
  event(3603, "tool_call_resumed", call("c", { result: { status: "done", outcome: "succeeded" } })),
  event(3603, "run_finish", { status: "done", outcome: "succeeded" }),
];
const brief = (events: ReturnType<typeof waited>) =>
  timelineOf(events).spans.map(({ kind, label, start, end, problem }) => [kind, label, start / 1000, end === null ? null : end / 1000, problem]);

test("background tasks are below the steps, and no work of the run itself", () => {
  const at = (second: number) => new Date(second * 1000);
  const task = { id: "t", tool: "crawl", isDone: true, outcome: "failed", error: "no such page", attempt: 2, childRunId: null, createdAt: at(2), startedAt: at(3), finishedAt: at(4000) };
  const open = { ...task, id: "u", outcome: null, isDone: false, error: null, attempt: 1, startedAt: null, finishedAt: null };
  const timeline = withTasks(timelineOf(waited()), [task, open]);
  const tasks = timeline.spans.filter(({ kind }) => kind === "task");
  assert.deepEqual(tasks.map(({ label, start, end, problem, detail }) => [label, start, end, problem, detail]), [
    ["crawl", 3000, 4_000_000, "failed", "no such page, attempt 2"],
    ["crawl", 2000, null, null, ""],
  ]);
  assert.equal(timeline.end, 4_000_000);
  assert.ok(timeScale(timeline, 500, false).stretches.some(({ isShort }) => isShort), "the wait is still drawn short");
});

test("a timeline has the model's answers, calls and waits, and who decided", () => {
  assert.deepEqual(brief(waited()), [
    ["model", "m", 0, 1, null],
    ["tool", "refund", 3602, 3603, null],
    ["wait", "waits for an approval", 2, 3602, null],
  ]);
  assert.deepEqual(timelineOf(waited()).marks.map(({ kind, text }) => [kind, text]), [["decision", "ben: approved"]]);
});

test("a call that waited has one row, with its earlier pieces", () => {
  const twice = [
    ...waited().slice(0, -2),
    event(3603, "tool_call_resumed", call("c", { result: { status: "waiting" } })),
    event(3603, "run_finish", { status: "waiting", waiting: { reason: "user_input" } }),
    event(3700, "run_start"),
    event(3702, "tool_call_resumed", call("c", { result: { status: "done", outcome: "failed" } })),
  ];
  const [tool, ...others] = timelineOf(twice).spans.filter(({ kind }) => kind === "tool");
  assert.deepEqual(others, []);
  assert.deepEqual([tool!.earlier, tool!.start, tool!.end, tool!.problem], [[{ start: 1000, end: 2000 }, { start: 3602_000, end: 3603_000 }], 3700_000, 3702_000, "failed"]);
});

test("an answer shows when its first output came", () => {
  const events = [
    event(0, "run_start"), event(0, "step_start", { step: 1 }),
    event(9, "inference_complete", { model: "m", duration_ms: 4000, first_token_ms: 1500, usage: { total_tokens: 8 } }),
  ];
  const [model] = timelineOf(events).spans;
  assert.deepEqual([model!.firstToken, model!.detail], [6500, "first output after 1500 ms, 8 tokens"]);
  assert.equal(timelineOf(waited()).spans[0]!.firstToken, null);
});

test("a takeover cuts what was begun, and is marked once", () => {
  const events = [
    event(0, "run_start"), event(0, "step_start", { step: 1 }),
    event(5, "stream_reset", { reason: "worker_lost" }), event(5, "run_start"),
    event(5, "step_start", { step: 1 }), event(6, "inference_complete", { model: "m" }),
  ];
  assert.deepEqual(brief(events), [["model", "model", 0, 5, "cut"], ["model", "m", 5, 6, null]]);
  assert.deepEqual(timelineOf(events).marks.map(({ kind, text }) => [kind, text]), [["takeover", "worker lost"]]);
});

test("what lasts has no end", () => {
  assert.deepEqual(brief([event(0, "run_start"), event(1, "step_start", { step: 1 })]), [["model", "model", 1, null, null]]);
});

test("a long wait takes 24 pixels, and its true length on request", () => {
  const timeline = timelineOf(waited());
  const scale = timeScale(timeline, 324, false);
  assert.deepEqual([0, 2000, 3602_000, 3603_000].map((at) => Math.round(scale.x(at))), [0, 200, 224, 324]);
  assert.deepEqual(scale.stretches.map(({ isShort }) => isShort), [false, true, false]);
  assert.ok(timeScale(timeline, 324, true).x(3602_000) > 320);
});

test("many long waits never take more than their share", () => {
  const events = Array.from({ length: 100 }, (_, at) => [
    event(at * 1000, "run_start"), event(at * 1000, "step_start", { step: at }),
    event(at * 1000 + 1, "inference_complete", { model: "m" }), event(at * 1000 + 1, "run_finish", { status: "waiting" }),
  ]).flat();
  const { stretches } = timeScale(timelineOf(events), 400, false);
  const short = stretches.filter(({ isShort }) => isShort).reduce((sum, { from, to }) => sum + to - from, 0);
  assert.ok(Math.abs(short - 160) < 0.01);
  assert.ok(Math.abs(stretches.at(-1)!.to - 400) < 0.01);
});

test("the run at an event is what the events up to it tell, and users' messages of before", () => {
  const message = (id: string, at: number, role: string, more: Partial<Message> = {}) =>
    ({ id, seq: at, role, text: id, media: [], calls: [], callId: null, runId: "r", at: new Date(at * 1000), ...more }) as Message;
  const now = { messages: [message("hello", 0, "user"), message("first", 2, "assistant"), message("later", 9, "user"), message("end", 10, "assistant")], results: { c: { text: "done" } }, tickets: [{}] } as unknown as RunState;
  const done = (second: number, id: string) => event(second, "message_done", { message: { seq: second, id, role: "assistant", content: [{ type: "text", text: id }] } });
  const events = [event(1, "step_start"), done(2, "first"), event(3, "state_snapshot", { snapshot: { a: 1 } }), event(9, "ticket_opened", { ticket: { id: "t", kind: "approval" } }), done(10, "end")];
  const texts = (at: number) => stateAt(now, "r", events, at).messages.map(({ text }) => text);
  assert.deepEqual(texts(events[0]!.seq), ["hello"]);
  assert.deepEqual(texts(events[1]!.seq), ["hello", "first"]);
  assert.deepEqual(texts(events[4]!.seq), ["hello", "first", "later", "end"]);
  assert.deepEqual(stateAt(now, "r", events, events[1]!.seq).results, {});
  assert.deepEqual(stateAt(now, "r", events, events[3]!.seq).tickets, []);
  assert.deepEqual([1, 2].map((index) => agentStateAt(events, events[index]!.seq)), [null, { a: 1 }]);
});

test("a tree has parents before children, and sums of tokens", () => {
  const run = (id: string, parentId: string | null, tokens: number) =>
    ({ id, parentId, inputTokens: tokens, outputTokens: 0, createdAt: new Date(tokens) }) as Run;
  const rows = treeOf([run("leaf", "child", 3), run("child", "root", 2), run("root", "elsewhere", 1), run("other", "root", 4)]);
  assert.deepEqual(rows.map(({ run, depth, tokensWithBelow, isLast }) => [run.id, depth, tokensWithBelow, isLast]), [
    ["root", 0, 10, true], ["child", 1, 5, false], ["leaf", 2, 3, true], ["other", 1, 4, true],
  ]);
});

test("an event has a short text", () => {
  assert.equal(summaryOf(event(0, "tool_call_done", { result: { status: "done", outcome: "failed", text: "no\n such" } })), "failed · no such");
  assert.equal(summaryOf(event(0, "message_done", { message: { content: [{ type: "text", text: "x".repeat(999) }] } })).length, 161);
});

test("the axis has labels at even times, which leave out long waits", () => {
  const scale = timeScale(timelineOf(waited()), 900, false);
  const ticks = ticksOf(scale);
  assert.deepEqual(ticks.map(({ after }) => after), [0, 500, 1000, 1500, 2000, 2500]);
  const places = ticks.map(({ x }) => x);
  assert.deepEqual(places, [...places].sort((one, other) => one - other));
  assert.ok(places.every((x, at) => at === 0 || x - places[at - 1]! >= 80));
});
