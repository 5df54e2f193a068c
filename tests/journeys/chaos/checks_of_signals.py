"""Signals: an accepted signal is stored and used once, and a waiting call acts once per event."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tests.journeys.chaos.history import Answer, History, Kind, Operation
from tests.journeys.chaos.truth import Row, Truth
from tests.journeys.chaos.violations import Violation

AFTERMATH = "aftermath.signal."
"""Prefix of the ids of signals that were sent after the faults."""
_MAX_LOCK_SECONDS = 10.0
"""Seconds that a signal may have waited for the lock of its key, after the time of its row."""


def check_signals(history: History, truth: Truth) -> Iterator[Violation]:
    rows = {row["id"]: row for row in truth.signals}
    for row in truth.signals:
        if row["status"] == "delivering":
            yield Violation("a signal is never delivered", f"{row}")
    by_id: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in history.of(Kind.SIGNAL):
        by_id[operation.body["signal_id"]].append(operation)
        if operation.answer is Answer.DONE and operation.body["signal_id"] not in rows:
            yield Violation("an accepted signal is lost", f"{operation}")
    for asked in by_id.values():
        yield from _check_answers(asked, truth)
    yield from _check_kept(truth)
    yield from _check_effects(truth)


def _check_answers(asked: Sequence[Operation], truth: Truth) -> Iterator[Violation]:
    """The same request gets the same answer, and the answer agrees with the tickets."""
    decided = {ticket["id"]: ticket["decision_id"] for ticket in truth.tickets}
    done = [one.response for one in asked if one.answer is Answer.DONE]
    delivered = [response for response in done if response["status"] != "delivering"]
    if any(response != delivered[0] for response in delivered):
        yield Violation("a signal has two answers", f"{delivered}")
    for response in delivered:
        for ticket in response["tickets"]:
            is_winner = decided.get(ticket["id"]) == f"signal:{response['id']}"
            if (ticket["outcome"] == "answered") is not is_winner:
                yield Violation("an answered signal did not decide its ticket", f"{response}")


def _check_kept(truth: Truth) -> Iterator[Violation]:
    """A signal stored before its call is used by exactly one call, the one that waits for it."""
    used = Counter(ticket["decision_id"] for ticket in truth.tickets if ticket["kind"] == "event")
    for row in truth.signals:
        name = f"signal:{row['id']}"
        if row["response_status"] == "kept" and used[name] > 1:
            yield Violation("a stored signal is used twice", f"{row}")
        if row["status"] == "answered" and not used[name]:
            yield Violation("an answered signal was used by no call", f"{row}")
    stored = [row for row in truth.signals if row["status"] == "kept"]
    for ticket in truth.tickets:
        if not (ticket["decision_id"] or "").startswith(f"signal:{AFTERMATH}"):
            continue
        for row in stored:
            is_before = row["created_at"] + _MAX_LOCK_SECONDS < ticket["decided_at"]
            if row["key"] == ticket["event_key"] and is_before:
                yield Violation("a stored signal is not used", f"{row}, {ticket}")


def _check_effects(truth: Truth) -> Iterator[Violation]:
    """A call acts once per event, with the payload of the event."""
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
                "a call acts more often than it received events", f"{acted[call]}, {asked}"
            )
        if any(effect["what"] not in payloads for effect in acted[call]):
            yield Violation(
                "a call acts with a payload that it didn't receive", f"{acted[call]}, {asked}"
            )
        ended_well = (ends.get(call[0]) or {}).get("type") == "natural_end"
        if ended_well and len(asked) == len(events) and events and not acted[call]:
            yield Violation("a call doesn't act although it received its event", f"{asked}")
