"""Effects of tools: once, unless repeatable, and never without a required approval."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.journeys.chaos.truth import Row, Truth
from tests.journeys.chaos.violations import Violation

_ONCE = frozenset({"send", "pay", "ask"})
_NEEDS_APPROVAL = frozenset({"pay", "ask"})
_APPROVING = frozenset({"approve", "edit"})


def check_tools(truth: Truth) -> Iterator[Violation]:
    questions: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for ticket in truth.tickets:
        questions[(ticket["run_id"], ticket["call_id"])].append(ticket)
    of_call: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for effect in truth.effects:
        of_call[(effect["run_id"], effect["call_id"])].append(effect)
    for call, effects in of_call.items():
        by_key = Counter(effect["key"] for effect in effects)
        tool, asked = effects[0]["tool"], questions[call]
        if len(by_key) > 1:
            yield Violation("a call has two keys", f"{effects}")
        if tool in _ONCE and len(effects) > _allowed(tool, asked):
            yield Violation(
                "a side effect happens more often than was allowed", f"{effects}, {asked}"
            )
        if tool in _NEEDS_APPROVAL:
            yield from _check_edited(effects, asked)


def _allowed(tool: str, asked: list[Row]) -> int:
    """One execution without approval if none is needed, and one for each approval."""
    passes = sum(ticket["action"] in _APPROVING for ticket in asked)
    return passes if tool in _NEEDS_APPROVAL else passes + 1


def _check_edited(effects: list[Row], asked: list[Row]) -> Iterator[Violation]:
    """A call runs with its edited arguments."""
    edited = {ticket["payload"]["what"] for ticket in asked if ticket["action"] == "edit"}
    if edited and not all(effect["what"] in edited for effect in effects):
        yield Violation("an edited call runs with its old arguments", f"{effects}, {asked}")
