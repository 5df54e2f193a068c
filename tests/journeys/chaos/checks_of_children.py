"""Delegated work: one child does each piece, and its parent gets the child's answer unchanged."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.journeys.chaos.history import History
from tests.journeys.chaos.truth import Row, Truth
from tests.journeys.chaos.violations import Violation

TREE_END_TIMEOUT_SECONDS = 20.0
"""Seconds from a cancel request to the end of all runs below it, without faults, on a busy machine."""


@dataclass(frozen=True, slots=True)
class ChildWork:
    """Work for a child, as the parent's ticket or task stores it."""

    waiter: Row
    is_task: bool

    @property
    def child_id(self) -> str:
        child_id: str = self.waiter["work"]["run_id"]
        return child_id

    @property
    def call(self) -> tuple[str, int | None, str]:
        """The call that delegated it. A task has no step index, but call ids are unique in a run."""
        return self.waiter["run_id"], self.waiter.get("step_index"), self.waiter["call_id"]


def check_children(history: History, truth: Truth) -> Iterator[Violation]:
    runs = {run["id"]: run for run in truth.runs}
    given = child_work_of(truth)
    yield from _check_given(given, runs)
    yield from _check_lineage(given, runs)
    for one in given:
        child = runs.get(one.child_id)
        if child is not None and child["status"] == "done":
            yield from _check_answer(one, runs[one.waiter["run_id"]], child, truth)
    for top, below in ends_of_trees(truth):
        late = [run["id"] for run in below if _is_late(run, top, history)]
        if late:
            yield Violation("a tree is still open after its root ended", f"{top}: {late}")


def child_work_of(truth: Truth) -> list[ChildWork]:
    tickets = [ChildWork(ticket, False) for ticket in truth.tickets if ticket["kind"] == "child"]
    return tickets + [ChildWork(task, True) for task in truth.tasks if task["work"] is not None]


# --- one child for each call ----------------------------------------------------------------------


def _check_given(given: Sequence[ChildWork], runs: Mapping[str, Row]) -> Iterator[Violation]:
    for call, times in Counter(one.call for one in given).items():
        if times > 1:
            yield Violation("a call delegates twice", f"{call}: {times} times")
    for child_id, times in Counter(one.child_id for one in given).items():
        if times > 1:
            yield Violation("two calls have one child", f"{child_id}: {times} times")
    requested = {one.child_id for one in given}
    for run in runs.values():
        if run["parent_run_id"] is not None and run["id"] not in requested:
            yield Violation("a child without a request", f"{run}")
    children = Counter(
        (run["parent_run_id"], run["parent_call_id"])
        for run in runs.values()
        if run["parent_run_id"] is not None
    )
    asked = Counter((one.waiter["run_id"], one.waiter["call_id"]) for one in given)
    for key, times in children.items():
        if times > asked[key]:
            yield Violation("a call has two children", f"{key}: {times} children")
    for one in given:
        is_stored = one.waiter["work"]["keep"]
        if is_stored and one.child_id not in runs and _was_answered(one):
            yield Violation("a child is missing", f"{one.waiter}")
        if not is_stored and one.child_id in runs:
            yield Violation(
                "a child is kept although it should be deleted", f"{runs[one.child_id]}"
            )


def _was_answered(one: ChildWork) -> bool:
    """Whether the child answered; otherwise the parent had stopped waiting."""
    name, answered = ("status", "completed") if one.is_task else ("action", "respond")
    was_answered: bool = one.waiter[name] == answered
    return was_answered


def _check_lineage(given: Sequence[ChildWork], runs: Mapping[str, Row]) -> Iterator[Violation]:
    for run in runs.values():
        if run["parent_run_id"] is None and (run["root_run_id"], run["depth"]) != (run["id"], 0):
            yield Violation("a lineage is wrong", f"{run} has no parent")
    for one in given:
        child, parent = runs.get(one.child_id), runs[one.waiter["run_id"]]
        if child is None:
            continue
        expected = {
            "parent_run_id": parent["id"],
            "parent_thread_id": parent["thread_id"],
            "parent_call_id": one.waiter["call_id"],
            "root_run_id": parent["root_run_id"],
            "depth": parent["depth"] + 1,
            "agent_id": one.waiter["work"]["agent_id"],
        }
        if any(child[name] != value for name, value in expected.items()):
            yield Violation("a lineage is wrong", f"{child} is not {expected}")


# --- answers --------------------------------------------------------------------------------------


def _check_answer(one: ChildWork, parent: Row, child: Row, truth: Truth) -> Iterator[Violation]:
    """The report to the parent equals the child's output, and a parent that succeeds has read it."""
    waiter, output = one.waiter, child["final_output"] or ""
    is_answer = child["termination"]["type"] == "natural_end"
    ended_well = (parent["termination"] or {}).get("type") == "natural_end"
    if not _was_answered(one):
        is_lost = waiter["status"] == "running" if one.is_task else waiter["action"] is None
        if ended_well and is_lost:
            yield Violation("a child's answer is lost", f"{waiter}: {child}")
        return
    report = waiter["result"] if one.is_task else waiter["payload"]
    if report["response"] != output:
        yield Violation("an answer differs from the child's output", f"{waiter}: {child}")
    if ended_well and is_answer and not _has_read(one, output, truth):
        yield Violation("a child's answer is lost", f"{waiter}: {child}")


def _has_read(one: ChildWork, output: str, truth: Truth) -> bool:
    run_id, call_id = one.waiter["run_id"], one.waiter["call_id"]
    if one.is_task:
        texts = (
            message["content"]
            for message in truth.messages
            if message["role"] == "user" and one.waiter["id"] in message["content"]
        )
    else:
        texts = (
            message["content"]
            for message in truth.messages
            if message["tool_call_id"] == call_id and message["produced_by_run"] == run_id
        )
    return any(_within(output, content) for content in texts)


def _within(output: str, content: str) -> bool:
    """Whether a text, which is a JSON string, contains the answer as a JSON string."""
    return json.dumps(json.dumps(output))[3:-3] in content


# --- the ends of trees ----------------------------------------------------------------------------


def ends_of_trees(truth: Truth) -> Iterator[tuple[Row, list[Row]]]:
    """Each run that is done, with the runs below it that must be done as well: those that it waited for and,
    if it was cancelled, those in the background."""
    in_background = {one.child_id for one in child_work_of(truth) if one.is_task}
    below: defaultdict[str, list[Row]] = defaultdict(list)
    for run in truth.runs:
        if run["parent_run_id"] is not None:
            below[run["parent_run_id"]].append(run)
    for top in truth.runs:
        if top["status"] == "done":
            yield top, list(_ending_with(top, below, in_background))


def _ending_with(
    run: Row, below: Mapping[str, Sequence[Row]], in_background: set[str]
) -> Iterator[Row]:
    was_cancelled = run["termination"]["type"] == "cancelled"
    for child in below.get(run["id"], ()):
        if was_cancelled or child["id"] not in in_background:
            yield child
            if child["status"] == "done":
                yield from _ending_with(child, below, in_background)


def settling_of_tree(top: Row, below: Sequence[Row], since: float = 0.0) -> float:
    """Seconds from the cancel request of the root, or from `since` if later, until the tree was done."""
    ends = [run["finished_at"] for run in (top, *below) if run["finished_at"] is not None]
    return float(max(0.0, max(ends) - max(top["cancelled_at"], since)))


def _is_late(run: Row, top: Row, history: History) -> bool:
    if run["status"] != "done":
        return True
    began = max(top["cancelled_at"] or top["finished_at"], history.calm_at)
    is_late: bool = run["finished_at"] > began + TREE_END_TIMEOUT_SECONDS
    return is_late
