"""The lifecycle of a run, as its own state tells of it."""

from datetime import datetime
from typing import TypeAlias

from app.domain.json_values import Json
from app.domain.runs.runs import Done, Running, RunRecord, Waiting, status_of

RunActivity: TypeAlias = Running | Waiting | Done
"""Where an execution may leave a run."""
EXECUTING = Running(None)


def lifecycle(
    record: RunRecord,
    state: RunActivity,
    *,
    steps: int,
    active_seconds: float,
    at: datetime,
    reason: str | None,
) -> dict[str, Json]:
    shown: dict[str, Json] = {
        "run_id": record.id,
        "status": status_of(state).value,
        "step_count": steps,
        "active_ms": round(active_seconds * 1000),
        "updated_at": round(at.timestamp() * 1000),
    }
    if reason is not None:
        shown["status_reason"] = reason
    return shown
