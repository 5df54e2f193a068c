"""What tools have done: once, unless it may be done again, and never what nobody has allowed."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.journeys.chaos.truth import Row, Truth
from tests.journeys.chaos.violations import Violation

_ONCE = frozenset({"send", "pay", "ask"})
_ASKS_FIRST = frozenset({"pay", "ask"})
_LETS_PASS = frozenset({"approve", "edit"})


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
        if tool in _ASKS_FIRST:
            yield from _check_edited(effects, asked)


def _allowed(tool: str, asked: list[Row]) -> int:
    """Once by itself if nobody has to be asked, and once for each time that somebody said so."""
    passes = sum(ticket["action"] in _LETS_PASS for ticket in asked)
    return passes if tool in _ASKS_FIRST else passes + 1


def _check_edited(effects: list[Row], asked: list[Row]) -> Iterator[Violation]:
    """What was edited is what runs."""
    edited = {ticket["payload"]["what"] for ticket in asked if ticket["action"] == "edit"}
    if edited and not all(effect["what"] in edited for effect in effects):
        yield Violation("an edited call runs as it was", f"{effects}, {asked}")
