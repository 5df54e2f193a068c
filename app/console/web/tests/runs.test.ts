import assert from "node:assert/strict";
import { test } from "node:test";
import type { Message } from "../core/api/messages";
import type { ListedRun as Run } from "../core/api/runLists";
import { shortId } from "../core/ids";
import { addressOf, metadataOf, runFiltersOf, runQueryOf } from "../core/runs/filters";
import { changesBetween, EMPTY_RUNS, firstPage, polled, withMore, withNewer } from "../events/runList";
import { forkPoints } from "../parts/run/ForkDialog";
import { offeredActions } from "../parts/run/RunActions";

const run = (id: number, status = "running") => ({ id: `r${id}`, status, createdAt: new Date(id * 1000) }) as Run;
const page = (next: string | null, ...items: Run[]) => ({ items, next });
const ids = (runs: readonly Run[]) => runs.map(({ id }) => id);

test("a poll changes rows in place, and new rows wait", () => {
  const list = firstPage(page("more", run(3), run(2)));
  const next = polled(list, page("more", run(4), run(3, "done")));
  assert.deepEqual(next.runs.map(({ id, status }) => [id, status]), [["r3", "done"], ["r2", "running"]]);
  assert.deepEqual(ids(next.newer), ["r4"]);
  assert.deepEqual(ids(withNewer(next).runs), ["r4", "r3", "r2"]);
});

test("a row that no longer fits the filters stays until new rows are shown", () => {
  const list = firstPage(page(null, run(3), run(2)));
  const next = polled(list, page(null, run(3)));
  assert.deepEqual(ids(next.runs), ["r3", "r2"]);
  assert.deepEqual([...next.left], ["r2"]);
  assert.deepEqual(ids(withNewer(next).runs), ["r3"]);
  assert.deepEqual([...polled(next, page(null, run(3), run(2))).left], []);
});

test("rows of later pages aren't missing from the first one", () => {
  const list = withMore(firstPage(page("a", run(5), run(4))), page(null, run(4), run(3)));
  assert.deepEqual(ids(list.runs), ["r5", "r4", "r3"]);
  assert.equal(list.next, null);
  assert.deepEqual([...polled(list, page("a", run(6), run(5))).left], []);
});

test("a frozen list counts the runs that have come or changed", () => {
  const at = (one: Run, second: number) => ({ ...one, updatedAt: new Date(second * 1000) });
  const drawn = firstPage(page("more", at(run(3), 1), at(run(2), 1)));
  assert.equal(changesBetween(drawn, drawn), 0);
  assert.equal(changesBetween(drawn, polled(drawn, page("more", at(run(4), 1), at(run(3), 2), at(run(2), 1)))), 2);
});

test("an empty list shows its first runs at once", () => {
  assert.deepEqual(ids(polled({ ...EMPTY_RUNS, isLoaded: true }, page(null, run(1))).runs), ["r1"]);
});

test("filters survive the address", () => {
  const query = { state: "failed", agent: "clerk", from: "2026-11-01", to: "2026-11-02", metadata: "order=A-1", code: "x" };
  assert.deepEqual(addressOf(runFiltersOf(query)), query);
  const empty = runFiltersOf({ state: "nonsense", from: "yesterday" });
  assert.deepEqual(Object.values(addressOf(empty)), [null, null, null, null, null, null]);
});

test("a state is a status, a reason to wait, or an outcome", () => {
  const of = (state: string) => {
    const { status, waitingReason, outcome } = runQueryOf(runFiltersOf({ state }));
    return [status, waitingReason, outcome];
  };
  assert.deepEqual(of("running"), ["running", undefined, undefined]);
  assert.deepEqual(of("user_input"), [undefined, "user_input", undefined]);
  assert.deepEqual(of("budget_exceeded"), [undefined, undefined, "budget_exceeded"]);
});

test("the last day of a range is part of it", () => {
  const { createdAfter, createdBefore } = runQueryOf(runFiltersOf({ from: "2026-11-30", to: "2026-11-30" }));
  assert.equal(createdBefore!.getTime() - createdAfter!.getTime(), 86_400_000);
});

test("metadata is pairs, also with spaces in quotes", () => {
  assert.deepEqual(metadataOf('order=A-1 name="ann b" word =x'), { order: "A-1", name: "ann b" });
});

test("short ids of runs that start together differ", () => {
  assert.notEqual(shortId("01a1f3f7-4df3-7329-9903-fe69624dac77"), shortId("01a1f3f7-4df3-7329-9903-fe69624dac78"));
});

test("a copy doesn't end between a call and its result", () => {
  const message = (seq: number, role: string, calls: object[] = []) => ({ seq, role, calls, rolledBackBy: null }) as unknown as Message;
  const messages = [message(1, "user"), message(2, "assistant", [{}]), message(3, "tool"), message(4, "assistant")];
  assert.deepEqual(forkPoints(messages).map(({ seq }) => seq), [4, 3, 1]);
});

test("a run is cancelled and paused while it isn't done, and retried if it didn't succeed", () => {
  const allowed = (status: string, outcome: string | null, isPaused = false) =>
    offeredActions({ status, outcome, isPaused } as Run, null).filter(({ refusal }) => refusal === null).map(({ action }) => action);
  assert.deepEqual(allowed("waiting", null), ["cancel", "pause"]);
  assert.deepEqual(allowed("waiting", null, true), ["cancel", "resume"]);
  assert.deepEqual(allowed("done", "failed"), ["retry"]);
  assert.deepEqual(allowed("done", "succeeded"), []);
});
