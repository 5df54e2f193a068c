"""What becomes of work that agents give to others: done by one child each, its answer used as it was given."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.journeys.chaos.history import History
from tests.journeys.chaos.truth import Row, Truth
from tests.journeys.chaos.violations import Violation

TREE_ENDS_WITHIN = 20.0
"""Seconds from a wish to the end of all below it, when nothing is broken; on a busy machine."""


@dataclass(frozen=True, slots=True)
class Given:
    """Work for a child, as its parent's ticket or task keeps it."""

    waiter: Row
    is_task: bool

    @property
    def child_id(self) -> str:
        child_id: str = self.waiter["work"]["run_id"]
        return child_id

    @property
    def call(self) -> tuple[str, int | None, str]:
        """What asked for it. A task doesn't know its step, but no id comes twice in a run."""
        return self.waiter["run_id"], self.waiter.get("step_index"), self.waiter["call_id"]


def check_children(history: History, truth: Truth) -> Iterator[Violation]:
    runs = {run["id"]: run for run in truth.runs}
    given = given_of(truth)
    yield from _check_given(given, runs)
    yield from _check_lineage(given, runs)
    for one in given:
        child = runs.get(one.child_id)
        if child is not None and child["status"] == "done":
            yield from _check_answer(one, runs[one.waiter["run_id"]], child, truth)
    for top, below in ends_of_trees(truth):
        late = [run["id"] for run in below if _is_late(run, top, history)]
        if late:
            yield Violation("a tree outlives its end", f"{top}: {late}")


def given_of(truth: Truth) -> list[Given]:
    tickets = [Given(ticket, False) for ticket in truth.tickets if ticket["kind"] == "child"]
    return tickets + [Given(task, True) for task in truth.tasks if task["work"] is not None]


# --- one child for each call ----------------------------------------------------------------------


def _check_given(given: Sequence[Given], runs: Mapping[str, Row]) -> Iterator[Violation]:
    for call, times in Counter(one.call for one in given).items():
        if times > 1:
            yield Violation("a call gives its work away twice", f"{call}: {times} times")
    for child_id, times in Counter(one.child_id for one in given).items():
        if times > 1:
            yield Violation("two calls have one child", f"{child_id}: {times} times")
    asked_for = {one.child_id for one in given}
    for run in runs.values():
        if run["parent_run_id"] is not None and run["id"] not in asked_for:
            yield Violation("a child that nobody asked for", f"{run}")
    children = Counter(
        (run["parent_run_id"], run["parent_call_id"])
        for run in runs.values()
        if run["parent_run_id"] is not None
    )
    asked = Counter((one.waiter["run_id"], one.waiter["call_id"]) for one in given)
    for place, times in children.items():
        if times > asked[place]:
            yield Violation("a call has two children", f"{place}: {times} children")
    for one in given:
        is_kept = one.waiter["work"]["keep"]
        if is_kept and one.child_id not in runs and _was_answered(one):
            yield Violation("a child is gone", f"{one.waiter}")
        if not is_kept and one.child_id in runs:
            yield Violation("a child is kept that wasn't to be", f"{runs[one.child_id]}")


def _was_answered(one: Given) -> bool:
    """By its child, and not because nobody waited any more."""
    name, answered = ("status", "completed") if one.is_task else ("action", "respond")
    was_answered: bool = one.waiter[name] == answered
    return was_answered


def _check_lineage(given: Sequence[Given], runs: Mapping[str, Row]) -> Iterator[Violation]:
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


def _check_answer(one: Given, parent: Row, child: Row, truth: Truth) -> Iterator[Violation]:
    """What a parent was told is what the child has come to, and a parent that ends well has read it."""
    waiter, said = one.waiter, child["final_output"] or ""
    is_answer = child["termination"]["type"] == "natural_end"
    ended_well = (parent["termination"] or {}).get("type") == "natural_end"
    if not _was_answered(one):
        is_lost = waiter["status"] == "running" if one.is_task else waiter["action"] is None
        if ended_well and is_lost:
            yield Violation("a child's answer is lost", f"{waiter}: {child}")
        return
    report = waiter["result"] if one.is_task else waiter["payload"]
    if report["response"] != said:
        yield Violation("an answer isn't what the child has said", f"{waiter}: {child}")
    if ended_well and is_answer and not _has_read(one, said, truth):
        yield Violation("a child's answer is lost", f"{waiter}: {child}")


def _has_read(one: Given, said: str, truth: Truth) -> bool:
    run_id, call_id = one.waiter["run_id"], one.waiter["call_id"]
    if one.is_task:
        told = (
            message["content"]
            for message in truth.messages
            if message["role"] == "user" and one.waiter["id"] in message["content"]
        )
    else:
        told = (
            message["content"]
            for message in truth.messages
            if message["tool_call_id"] == call_id and message["produced_by_run"] == run_id
        )
    return any(_within(said, content) for content in told)


def _within(said: str, content: str) -> bool:
    """An answer as a string of JSON in a text that is a string of JSON itself."""
    return json.dumps(json.dumps(said))[3:-3] in content


# --- the ends of trees ----------------------------------------------------------------------------


def ends_of_trees(truth: Truth) -> Iterator[tuple[Row, list[Row]]]:
    """Each run that is done, and whoever below it has to be done as well: those that it waited for, and of
    one that was cancelled also those in the background."""
    in_background = {one.child_id for one in given_of(truth) if one.is_task}
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
    """How long after the wish to cancel its first run a tree was done; not counted before `since`."""
    ends = [run["finished_at"] for run in (top, *below) if run["finished_at"] is not None]
    return float(max(0.0, max(ends) - max(top["cancelled_at"], since)))


def _is_late(run: Row, top: Row, history: History) -> bool:
    if run["status"] != "done":
        return True
    began = max(top["cancelled_at"] or top["finished_at"], history.calm_at)
    is_late: bool = run["finished_at"] > began + TREE_ENDS_WITHIN
    return is_late
