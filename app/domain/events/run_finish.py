"""Finishes: how an activation tells of its last moment, whether the run ends in it or rests."""

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
    """The run goes on once what it waits for has come, or at `waiting.until`."""
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
    """Nothing comes after this."""
    return RunFinish(
        identity=run_identity(record),
        termination=termination_to_json(termination),
        result=result,
    )
