import assert from "node:assert/strict";
import { test } from "node:test";
import type { Message } from "../core/api/messages";
import { newest } from "../core/threads/thread";
import { nameOf } from "../parts/threads/ThreadRow";
import type { Thread } from "../core/api/threads";
import type { RunState } from "../events/reduceRun";

const state = (lastSeq: number, messages: number[], more: Partial<RunState> = {}) =>
  ({ lastSeq, messages: messages.map((seq) => ({ seq }) as Message), results: {}, open: null, recordVersion: 3, logVersion: 2, ...more }) as RunState;
const seqs = ({ messages }: RunState) => messages.map(({ seq }) => seq);

test("a snapshot that is newer than the events replaces the conversation", () => {
  const read = newest(state(5, [1]), state(9, [1, 2], { recordVersion: 0, logVersion: 0 }));
  assert.deepEqual([seqs(read), read.lastSeq, read.recordVersion, read.logVersion], [[1, 2], 9, 3, 2]);
});

test("an older snapshot adds its messages, and what is being streamed stays", () => {
  const open = { text: "Hel", reasoning: "", calls: [] };
  const read = newest(state(9, [1, 3], { open }), state(5, [1, 2]));
  assert.deepEqual([seqs(read), read.lastSeq, read.open], [[1, 2, 3], 9, open]);
});

test("an older snapshot without news changes nothing", () => {
  const before = state(9, [1, 2]);
  assert.equal(newest(before, state(5, [1])), before);
});

test("a thread is named by its title, its key, the words it began with, or its id", () => {
  const thread = { id: "01a1f3f7-4df3-7329-9903-fe69624dac77", title: null, key: null, resourceId: null, firstWords: "" } as unknown as Thread;
  const named = [{ ...thread, title: "t", key: "k" }, { ...thread, key: "k", firstWords: "w" }, { ...thread, firstWords: " pay \n it ", resourceId: "r" }, { ...thread, resourceId: "r" }, thread];
  assert.deepEqual(named.map(nameOf), ["t", "k", "pay it", "r", "Thread 624dac77"]);
  assert.equal(nameOf({ ...thread, firstWords: "x".repeat(200) }), `${"x".repeat(80)}…`);
});
