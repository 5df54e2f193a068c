"""Builds `run_finish`, for an activation that ends the run or suspends it.

A suspension says who has to act: `needs_decision` with the tickets that people decide, or the reason of a wait
that ends without a person.
"""

from collections.abc import Sequence
from typing import Any

from app.domain.events.run_events import RunFinish
from app.domain.json_values import JsonObject
from app.domain.runs.identity import SINCE_DISPATCH_ID, run_identity, waits_since
from app.domain.runs.runs import RunRecord, RunStatus, Waiting, WaitingReason
from app.domain.runs.terminations import SUSPENDED, Termination, outcome, termination_to_json
from app.domain.structs import replace
from app.domain.tickets.ticket_json import child_of, ticket_order
from app.domain.tickets.tickets import Ticket, decided_by_people
from app.domain.timestamps import format_timestamp

MAX_TITLE_CHARACTERS = 120


def finish_suspended(
    record: RunRecord,
    waiting: Waiting,
    tickets: Sequence[Ticket],
    result: JsonObject | None = None,
    *,
    detail: str = "",
) -> RunFinish:
    """`run_finish` of a suspension with these open tickets.

    Without a ticket for people and without a pause, the run resumes by itself: when the awaited run, task,
    event or agent version comes, or at `waiting.until`.
    """
    asked = sorted(decided_by_people(tickets), key=ticket_order)
    shown: dict[str, Any] = {
        "reason": waiting.reason.value,
        "needs_decision": bool(asked) or waiting.reason is WaitingReason.MANUAL_PAUSE,
        "tickets": [ticket_in_finish(ticket) for ticket in asked],
        SINCE_DISPATCH_ID: waits_since(record),
    }
    if waiting.until is not None:
        shown["until"] = format_timestamp(waiting.until)
    if detail:
        shown["detail"] = detail
    return RunFinish(
        identity=run_identity(record),
        status=RunStatus.WAITING.value,
        termination=SUSPENDED,
        result=result,
        waiting=shown,
    )


def ticket_in_finish(ticket: Ticket) -> dict[str, Any]:
    """A ticket as `run_finish` names it. Its `ticket_opened` event has the other fields."""
    return {"id": ticket.id, "name": ticket.name, "title": title_of(ticket.message)}


def title_of(message: str) -> str:
    """The first line of a ticket's message, cut to a title's length."""
    line = message.strip().partition("\n")[0]
    if len(line) <= MAX_TITLE_CHARACTERS:
        return line
    return f"{line[: MAX_TITLE_CHARACTERS - 1]}…"


def waiting_for_person(finish: RunFinish, below: Sequence[Ticket]) -> RunFinish:
    """The finish of a suspension that only a person ends: the run is paused, or these tickets below it are open."""
    assert finish.waiting is not None, "the finish of a suspension"
    named = [{**ticket_in_finish(ticket), "child": child_of(ticket)} for ticket in below]
    tickets = [*finish.waiting["tickets"], *named]
    return replace(finish, waiting={**finish.waiting, "needs_decision": True, "tickets": tickets})


def finish_done(record: RunRecord, termination: Termination, result: JsonObject) -> RunFinish:
    """`run_finish` of the run's end, its last event."""
    return RunFinish(
        identity=run_identity(record),
        status=RunStatus.DONE.value,
        outcome=outcome(termination).value,
        termination=termination_to_json(termination),
        result=result,
    )
