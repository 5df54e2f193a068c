"""What clients were told: what was accepted is there once, what was refused isn't, what was decided counts."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tests.journeys.chaos.history import NOT_OURS, Answer, History, Kind, Operation
from tests.journeys.chaos.truth import Row, Truth
from tests.journeys.chaos.violations import Violation

_MARK = re.compile(r"\[([\w.]+)\]")
_WINNERS = frozenset({"ticket_already_decided"})


def check_requests(history: History, truth: Truth) -> Iterator[Violation]:
    for operation in history.operations:
        if operation.status is not None and operation.status >= 500 and operation.status != 503:
            yield Violation("a request breaks the server", f"{operation}")
        if operation.said.get("code") == NOT_OURS:
            yield Violation("an answer isn't JSON", f"{operation}")
    yield from _check_messages(history, truth)
    yield from _check_runs(history, truth)
    yield from _check_decisions(list(history.of(Kind.DECIDE)), truth)
    yield from _check_cancels(history, truth)
    yield from _check_pauses(history, truth)


def _check_messages(history: History, truth: Truth) -> Iterator[Violation]:
    """Each message is in the log once, or waits, or was given back by a run that ended without it."""
    logged = Counter(
        mark
        for message in truth.messages
        if message["role"] == "user"
        for mark in _MARK.findall(message["content"])
    )
    unread: defaultdict[str, list[str]] = defaultdict(list)
    for one in truth.inputs:
        if one["status"] != "consumed":
            for mark in _MARK.findall(one["message"]):
                unread[mark].append(one["run_id"])
    ends = {run["id"]: run["termination"] for run in truth.runs}
    for kind in (Kind.START, Kind.INPUT):
        for operation in history.of(kind):
            times, waiting = logged[operation.mark], unread[operation.mark]
            if times > 1:
                yield Violation("a message is in the log twice", f"{operation}")
            if operation.answer is Answer.DONE and not times and not waiting:
                yield Violation("an accepted message is lost", f"{operation}")
            if operation.has_not_happened and (times or waiting):
                yield Violation("a refused message is there", f"{operation}")
            for run_id in waiting:
                if (ends.get(run_id) or {}).get("type") == "natural_end":
                    yield Violation("a message is overlooked by its run", f"{operation}")


def _check_runs(history: History, truth: Truth) -> Iterator[Violation]:
    """A start makes one run, however often it was repeated, or joins another one."""
    started: defaultdict[str, list[str]] = defaultdict(list)
    for run in truth.runs:
        if run["mark"] is not None and run["retry_of"] is None:
            started[run["mark"]].append(run["id"])
    runs = {run["id"] for run in truth.runs}
    for operation in history.of(Kind.START):
        if len(started[operation.mark]) > 1:
            yield Violation("a start makes two runs", f"{operation}: {started[operation.mark]}")
        if operation.has_not_happened and started[operation.mark]:
            yield Violation("a refused start makes a run", f"{operation}")
    for operation in history.operations:
        told = operation.said.get("run_id")
        if operation.answer is Answer.DONE and told is not None and told not in runs:
            yield Violation("an accepted run is lost", f"{operation}")


def _check_decisions(decided: Sequence[Operation], truth: Truth) -> Iterator[Violation]:
    """Whoever was told of a winner was told of the same one, and that is the one that counts."""
    tickets = {ticket["id"]: ticket for ticket in truth.tickets}
    for operation in decided:
        ticket = tickets.get(operation.body["decisions"][0]["ticket_id"])
        if ticket is None:
            yield Violation("a ticket is gone", f"{operation}")
            continue
        told = _winner_told(operation)
        if told is not None and told != ticket["decision_id"]:
            yield Violation(
                "a decision that was answered doesn't count",
                f"told {told}, but it is {ticket['decision_id']}: {operation}",
            )
    yield from _check_applied(truth)


def _winner_told(operation: Operation) -> str | None:
    if operation.answer is Answer.DONE:
        decision_id: str = operation.said["results"][0]["decision_id"]
        return decision_id
    if operation.said.get("code") in _WINNERS:
        winner: str = operation.said["winner"]["decision_id"]
        return winner
    return None


def _check_applied(truth: Truth) -> Iterator[Violation]:
    runs: dict[str, Row] = {run["id"]: run for run in truth.runs}
    for ticket in truth.tickets:
        end = runs[ticket["run_id"]]["termination"]
        if end is not None and ticket["status"] == "open":
            yield Violation("a run ends with a ticket open", json.dumps(dict(ticket)))
        ended_well = end is not None and end["type"] == "natural_end"
        if ended_well and ticket["status"] == "decided" and not ticket["is_applied"]:
            yield Violation("a decision is never used", json.dumps(dict(ticket)))


def _check_cancels(history: History, truth: Truth) -> Iterator[Violation]:
    """An accepted wish is in the record, unless the run was over; one that is settled is done."""
    runs = {run["id"]: run for run in truth.runs}
    for operation in history.of(Kind.CANCEL):
        if operation.answer is not Answer.DONE:
            continue
        run = runs.get(operation.said["run_id"])
        if run is None:
            continue
        if operation.status == 202 and not run["was_to_be_cancelled"]:
            yield Violation("a wish to cancel is lost", f"{operation}")
        if operation.status == 200 and operation.said["status"] != "done":
            yield Violation("a cancel is settled that isn't", f"{operation}")


def _check_pauses(history: History, truth: Truth) -> Iterator[Violation]:
    """An accepted pause is in the log of its run, once; one that is settled is executed by no worker.

    That a paused run executes no further is held against its events, like their order.
    """
    requested = Counter(
        (event["run_id"], event.get("reason"))
        for event in truth.events
        if event["event_type"] == "pause_requested"
    )
    for operation in history.of(Kind.PAUSE):
        if operation.answer is not Answer.DONE:
            continue
        run_id, pause = operation.said["run_id"], operation.said["pause"]
        if pause is not None and not requested[run_id, pause["reason"]]:
            yield Violation("a pause is lost", f"{operation}")
        if requested[run_id, operation.mark] > 1:
            yield Violation("a pause is requested twice", f"{operation}")
        if operation.status == 200 and operation.said["status"] == "running":
            yield Violation("a pause is settled that isn't", f"{operation}")
    for operation in history.of(Kind.RESUME):
        if operation.answer is Answer.DONE and operation.said["pause"] is not None:
            yield Violation("a resume leaves a pause", f"{operation}")
