"""The checker of the chaos trials, for trees of runs: it finds each seeded fault by its rule, and no other."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.journeys.chaos.checks_of_children import (
    TREE_END_TIMEOUT_SECONDS,
    check_children,
    ends_of_trees,
    settling_of_tree,
)
from tests.journeys.chaos.history import History
from tests.journeys.chaos.truth import Row, Truth

BOSS, LEAD, HAND, DISTANT = "the boss", "the lead", "the hand", "the distant one"
CALM = 100.0
NATURAL, CANCELLED = {"type": "natural_end"}, {"type": "cancelled"}


def run(id: str, parent: str | None = None, depth: int = 0, **more: Any) -> Row:
    above = {
        "parent_run_id": parent,
        "parent_thread_id": parent and f"thread of {parent}",
        "parent_call_id": parent and f"call for {id}",
    }
    end = {"status": "done", "termination": NATURAL, "final_output": f'"{id}" is\ndone'}
    times = {"cancelled_at": None, "finished_at": CALM + 1}
    own = {"id": id, "thread_id": f"thread of {id}", "agent_id": f"agent of {id}"}
    return {**own, **above, "root_run_id": BOSS, "depth": depth, **end, **times, **more}


def work(id: str, *, keep: bool = True) -> Row:
    return {"run_id": id, "agent_id": f"agent of {id}", "keep": keep}


def ticket(id: str, parent: str) -> Row:
    """A ticket of kind `child` that was answered by a child run."""
    return {
        "id": f"ticket of {id}",
        "kind": "child",
        "run_id": parent,
        "call_id": f"call for {id}",
        "step_index": 1,
        "work": work(id),
        "action": "respond",
        "payload": {"run_id": id, "response": f'"{id}" is\ndone'},
    }


def logged_report(text: str, **more: Any) -> Row:
    """A message whose text is an object with a child's answer in it."""
    inner = '{"response":"\\\\\\"' + text + '\\\\\\" is\\\\ndone"}'
    return {"content": f'[{{"text": "{inner}"}}]', "role": "tool", "tool_call_id": None} | more


@dataclass
class Tree:
    """A root run with a child and a grandchild that it waits for, and a child in the background."""

    runs: dict[str, Row] = field(
        default_factory=lambda: {
            BOSS: run(BOSS),
            LEAD: run(LEAD, BOSS, 1),
            HAND: run(HAND, LEAD, 2),
            DISTANT: run(DISTANT, BOSS, 1),
        }
    )
    tickets: list[Row] = field(default_factory=lambda: [ticket(LEAD, BOSS), ticket(HAND, LEAD)])
    tasks: list[Row] = field(
        default_factory=lambda: [
            {
                "id": "the task",
                "run_id": BOSS,
                "call_id": f"call for {DISTANT}",
                "status": "completed",
                "result": {"response": f'"{DISTANT}" is\ndone'},
                "work": work(DISTANT),
            }
        ]
    )
    messages: list[Row] = field(
        default_factory=lambda: [
            logged_report(LEAD, tool_call_id=f"call for {LEAD}", produced_by_run=BOSS),
            logged_report(HAND, tool_call_id=f"call for {HAND}", produced_by_run=LEAD),
            {**logged_report(DISTANT, role="user"), "task_id": "the task", "produced_by_run": None},
        ]
    )

    @property
    def truth(self) -> Truth:
        return Truth(
            runs=list(self.runs.values()),
            tickets=self.tickets,
            tasks=self.tasks,
            messages=self.messages,
        )

    def rules(self) -> set[str]:
        history = History(calm_at=CALM)
        return {violation.rule for violation in check_children(history, self.truth)}


def sound() -> Tree:
    tree = Tree()
    tree.messages[-1]["content"] += "the task"
    return tree


def test_a_sound_tree_has_no_violation() -> None:
    assert sound().rules() == set()


# --- one child for each call ----------------------------------------------------------------------


def starts_a_child_twice(tree: Tree) -> None:
    tree.runs["another"] = {**tree.runs[HAND], "id": "another"}


def starts_a_task_twice(tree: Tree) -> None:
    tree.runs["another"] = {**tree.runs[DISTANT], "id": "another"}


def opens_two_tickets(tree: Tree) -> None:
    tree.tickets.append({**tree.tickets[1], "work": work("another")})


def asks_one_child_for_two_calls(tree: Tree) -> None:
    tree.tickets.append({**tree.tickets[1], "call_id": "another"})


def starts_a_child_without_a_call(tree: Tree) -> None:
    del tree.tickets[1]


def loses_a_child(tree: Tree) -> None:
    del tree.runs[HAND]


def keeps_a_child(tree: Tree) -> None:
    tree.tickets[1]["work"] = work(HAND, keep=False)


def forgets_its_root(tree: Tree) -> None:
    tree.runs[HAND]["root_run_id"] = LEAD


def miscounts_its_depth(tree: Tree) -> None:
    tree.runs[HAND]["depth"] = 1


def names_another_call(tree: Tree) -> None:
    tree.runs[DISTANT]["parent_call_id"] = "another"


def has_depth_without_a_parent(tree: Tree) -> None:
    tree.runs[BOSS]["depth"] = 1


# --- answers --------------------------------------------------------------------------------------


def reports_another_answer(tree: Tree) -> None:
    tree.tickets[1]["payload"] = {"run_id": HAND, "response": "something else"}


def reports_another_result_of_a_task(tree: Tree) -> None:
    tree.tasks[0]["result"] = {"response": "something else"}


def never_gets_the_answer(tree: Tree) -> None:
    tree.tickets[1]["action"] = None


def never_gets_the_end_of_a_task(tree: Tree) -> None:
    tree.tasks[0]["status"] = "running"


def never_reads_the_answer(tree: Tree) -> None:
    tree.messages[1]["content"] = '[{"text": "{}"}]'


def never_reads_the_end_of_a_task(tree: Tree) -> None:
    del tree.messages[-1]


# --- the ends of trees ----------------------------------------------------------------------------


def cancelled(tree: Tree) -> None:
    tree.runs[BOSS] |= {"termination": CANCELLED, "cancelled_at": CALM - 50}


def leaves_a_child_open(tree: Tree) -> None:
    tree.runs[LEAD] |= {"status": "running", "termination": None, "finished_at": None}


def leaves_a_grandchild_open(tree: Tree) -> None:
    cancelled(tree)
    tree.runs[HAND] |= {"status": "waiting", "termination": None, "finished_at": None}


def is_slow_to_end_its_background(tree: Tree) -> None:
    cancelled(tree)
    tree.runs[DISTANT]["finished_at"] = CALM + TREE_END_TIMEOUT_SECONDS + 1


@pytest.mark.parametrize(
    ("planted", "rule"),
    [
        (starts_a_child_twice, "a call has two children"),
        (starts_a_task_twice, "a call has two children"),
        (opens_two_tickets, "a call delegates twice"),
        (asks_one_child_for_two_calls, "two calls have one child"),
        (starts_a_child_without_a_call, "a child without a request"),
        (loses_a_child, "a child is missing"),
        (keeps_a_child, "a child is kept although it should be deleted"),
        (forgets_its_root, "a lineage is wrong"),
        (miscounts_its_depth, "a lineage is wrong"),
        (names_another_call, "a lineage is wrong"),
        (has_depth_without_a_parent, "a lineage is wrong"),
        (reports_another_answer, "an answer differs from the child's output"),
        (reports_another_result_of_a_task, "an answer differs from the child's output"),
        (never_gets_the_answer, "a child's answer is lost"),
        (never_gets_the_end_of_a_task, "a child's answer is lost"),
        (never_reads_the_answer, "a child's answer is lost"),
        (never_reads_the_end_of_a_task, "a child's answer is lost"),
        (leaves_a_child_open, "a tree is still open after its root ended"),
        (leaves_a_grandchild_open, "a tree is still open after its root ended"),
        (is_slow_to_end_its_background, "a tree is still open after its root ended"),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)
def test_a_seeded_fault_is_found(planted: Callable[[Tree], None], rule: str) -> None:
    tree = sound()
    planted(tree)
    assert rule in tree.rules()


def test_a_failed_run_does_not_end_its_background_tasks() -> None:
    tree = sound()
    tree.runs[BOSS]["termination"] = {"type": "error", "code": "inference"}
    tree.runs[DISTANT]["finished_at"] = CALM + TREE_END_TIMEOUT_SECONDS + 1
    assert tree.rules() == set()


def test_the_time_to_settle_counts_from_the_cancel_request_or_the_end_of_the_faults() -> None:
    tree = sound()
    cancelled(tree)
    top, below = next(ends_of_trees(tree.truth))
    assert {each["id"] for each in below} == {LEAD, HAND, DISTANT}
    assert settling_of_tree(top, below) == 51
    assert settling_of_tree(top, below, since=CALM) == 1
