"""Answers to clients: accepted requests took effect once, refused ones didn't, and winners were used."""

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
        if operation.response.get("code") == NOT_OURS:
            yield Violation("an answer isn't JSON", f"{operation}")
    yield from _check_messages(history, truth)
    yield from _check_runs(history, truth)
    yield from _check_decisions(list(history.of(Kind.DECIDE)), truth)
    yield from _check_cancels(history, truth)
    yield from _check_pauses(history, truth)


def _check_messages(history: History, truth: Truth) -> Iterator[Violation]:
    """Each accepted message is in the log once, is pending, or was returned by a run that ended without it."""
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
            if operation.was_refused_at_once and (times or waiting):
                yield Violation("a refused message is stored", f"{operation}")
            for run_id in waiting:
                if (ends.get(run_id) or {}).get("type") == "natural_end":
                    yield Violation("a run ends without reading its message", f"{operation}")


def _check_runs(history: History, truth: Truth) -> Iterator[Violation]:
    """A start creates one run, even if repeated, or joins an existing one."""
    started: defaultdict[str, list[str]] = defaultdict(list)
    for run in truth.runs:
        if run["mark"] is not None and run["retry_of"] is None:
            started[run["mark"]].append(run["id"])
    runs = {run["id"] for run in truth.runs}
    for operation in history.of(Kind.START):
        if len(started[operation.mark]) > 1:
            yield Violation("a start makes two runs", f"{operation}: {started[operation.mark]}")
        if operation.was_refused_at_once and started[operation.mark]:
            yield Violation("a refused start makes a run", f"{operation}")
    for operation in history.operations:
        if operation.kind is Kind.SIGNAL:
            continue
        run_id = operation.response.get("run_id" if operation.kind is Kind.INPUT else "id")
        if operation.answer is Answer.DONE and run_id is not None and run_id not in runs:
            yield Violation("an accepted run is lost", f"{operation}")


def _check_decisions(decided: Sequence[Operation], truth: Truth) -> Iterator[Violation]:
    """Every answer names the same winning decision, and that decision is the stored one."""
    tickets = {ticket["id"]: ticket for ticket in truth.tickets}
    for operation in decided:
        ticket = tickets.get(operation.body["decisions"][0]["ticket_id"])
        if ticket is None:
            yield Violation("a ticket is gone", f"{operation}")
            continue
        winner = _winner_in(operation)
        if winner is not None and winner != ticket["decision_id"]:
            yield Violation(
                "an answered decision is not the winner",
                f"the answer names {winner}, the row {ticket['decision_id']}: {operation}",
            )
    yield from _check_applied(truth)


def _winner_in(operation: Operation) -> str | None:
    if operation.answer is Answer.DONE:
        decision_id: str = operation.response["results"][0]["decision_id"]
        return decision_id
    if operation.response.get("code") in _WINNERS:
        winner: str = operation.response["winner"]["id"]
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
    """An accepted cancel request is in the run's row, unless the run was done; a settled one means a done run."""
    runs = {run["id"]: run for run in truth.runs}
    for operation in history.of(Kind.CANCEL):
        if operation.answer is not Answer.DONE:
            continue
        run = runs.get(operation.response["id"])
        if run is None:
            continue
        if operation.status == 202 and not run["is_cancel_requested"]:
            yield Violation("a cancel request is lost", f"{operation}")
        if operation.status == 200 and operation.response["status"] != "done":
            yield Violation(
                "a cancel is answered as settled before the run is done", f"{operation}"
            )


def _check_pauses(history: History, truth: Truth) -> Iterator[Violation]:
    """An accepted pause is in the run's log once; when it is settled, no worker executes the run.

    `checks_of_logs` checks that a paused run executes no further step.
    """
    requested = Counter(
        (event["run_id"], event.get("reason"))
        for event in truth.events
        if event["event_type"] == "pause_requested"
    )
    for operation in history.of(Kind.PAUSE):
        if operation.answer is not Answer.DONE:
            continue
        run_id, pause = operation.response["id"], operation.response["pause"]
        if pause is not None and not requested[run_id, pause["reason"]]:
            yield Violation("a pause is lost", f"{operation}")
        if requested[run_id, operation.mark] > 1:
            yield Violation("a pause is requested twice", f"{operation}")
        if operation.status == 200 and operation.response["status"] == "running":
            yield Violation("a pause is answered as settled while the run executes", f"{operation}")
    for operation in history.of(Kind.RESUME):
        if operation.answer is Answer.DONE and operation.response["pause"] is not None:
            yield Violation("a resume leaves a pause", f"{operation}")
