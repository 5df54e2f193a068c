"""Builds `run_finish`, for an activation that ends the run or suspends it."""

from collections.abc import Sequence

from app.domain.events.run_events import RunFinish
from app.domain.json_values import JsonObject
from app.domain.runs.identity import run_identity, waits_since
from app.domain.runs.runs import RunRecord, Waiting
from app.domain.runs.terminations import SUSPENDED, Termination, termination_to_json
from app.domain.tickets.tickets import Ticket, waiting_to_json


def finish_suspended(
    record: RunRecord,
    waiting: Waiting,
    tickets: Sequence[Ticket],
    result: JsonObject | None = None,
    *,
    detail: str = "",
) -> RunFinish:
    """`run_finish` of a suspension. The run resumes when the awaited event comes, or at `waiting.until`."""
    return RunFinish(
        identity=run_identity(record),
        termination=SUSPENDED,
        result=result,
        waiting=waiting_to_json(
            waiting.reason,
            waiting.message,
            tickets,
            waits_since(record),
            until=waiting.until,
            detail=detail,
        ),
    )


def finish_done(record: RunRecord, termination: Termination, result: JsonObject) -> RunFinish:
    """`run_finish` of the run's end, its last event."""
    return RunFinish(
        identity=run_identity(record),
        termination=termination_to_json(termination),
        result=result,
    )
