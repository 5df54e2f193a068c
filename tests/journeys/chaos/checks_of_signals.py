"""Signals: what was accepted is there and is used once, and a call that waits acts once per event."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tests.journeys.chaos.history import Answer, History, Kind, Operation
from tests.journeys.chaos.truth import Row, Truth
from tests.journeys.chaos.violations import Violation

AFTERMATH = "aftermath.signal."
"""What the ids of signals begin with that were sent when everything else was over."""
_LOCKS_LAST_AT_MOST = 10.0
"""Seconds for which a signal may have waited for its key, after the time of its row."""


def check_signals(history: History, truth: Truth) -> Iterator[Violation]:
    rows = {row["id"]: row for row in truth.signals}
    for row in truth.signals:
        if row["status"] == "delivering":
            yield Violation("a signal is never delivered", f"{row}")
    by_id: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in history.of(Kind.SIGNAL):
        by_id[operation.body["id"]].append(operation)
        if operation.answer is Answer.DONE and operation.body["id"] not in rows:
            yield Violation("an accepted signal is lost", f"{operation}")
    for asked in by_id.values():
        yield from _check_answers(asked, truth)
    yield from _check_kept(truth)
    yield from _check_effects(truth)


def _check_answers(asked: Sequence[Operation], truth: Truth) -> Iterator[Violation]:
    """The same request gets the same answer, and what that says is so."""
    decided = {ticket["id"]: ticket["decision_id"] for ticket in truth.tickets}
    done = [one.said for one in asked if one.answer is Answer.DONE]
    told = [said for said in done if said["status"] != "delivering"]
    if any(said != told[0] for said in told):
        yield Violation("a signal has two answers", f"{told}")
    for said in told:
        for ticket in said["tickets"]:
            is_winner = decided.get(ticket["id"]) == f"signal:{said['id']}"
            if (ticket["outcome"] == "answered") is not is_winner:
                yield Violation("a signal that was answered doesn't count", f"{said}")


def _check_kept(truth: Truth) -> Iterator[Violation]:
    """One that came before the call that waits is taken by one call, and by that."""
    used = Counter(ticket["decision_id"] for ticket in truth.tickets if ticket["kind"] == "event")
    for row in truth.signals:
        name = f"signal:{row['id']}"
        if row["answer"] == "kept" and used[name] > 1:
            yield Violation("a kept signal is used twice", f"{row}")
        if row["status"] == "answered" and not used[name]:
            yield Violation("a signal is used up by no call", f"{row}")
    kept = [row for row in truth.signals if row["status"] == "kept"]
    for ticket in truth.tickets:
        if not (ticket["decision_id"] or "").startswith(f"signal:{AFTERMATH}"):
            continue
        for row in kept:
            is_before = row["created_at"] + _LOCKS_LAST_AT_MOST < ticket["decided_at"]
            if row["key"] == ticket["event_key"] and is_before:
                yield Violation("a kept signal is overlooked", f"{row}, {ticket}")


def _check_effects(truth: Truth) -> Iterator[Violation]:
    """A call acts once for its event, with that event's payload."""
    of_call: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for ticket in truth.tickets:
        of_call[ticket["run_id"], ticket["call_id"]].append(ticket)
    acted: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for effect in truth.effects:
        if effect["tool"] == "receive":
            acted[effect["run_id"], effect["call_id"]].append(effect)
    ends = {run["id"]: run["termination"] for run in truth.runs}
    for call in acted.keys() | of_call.keys():
        asked = of_call[call]
        events = [one for one in asked if one["kind"] == "event" and one["action"] == "respond"]
        again = sum(one["action"] in ("approve", "edit") for one in asked)
        payloads = {event["payload"] for event in events}
        if len(acted[call]) > len(events) + again or (acted[call] and not events):
            yield Violation(
                "a call acts more often than its events came", f"{acted[call]}, {asked}"
            )
        if any(effect["what"] not in payloads for effect in acted[call]):
            yield Violation("a call acts with what didn't come", f"{acted[call]}, {asked}")
        ended_well = (ends.get(call[0]) or {}).get("type") == "natural_end"
        if ended_well and len(asked) == len(events) and events and not acted[call]:
            yield Violation("a call doesn't act though its event came", f"{asked}")
