"""The lifecycle entry in a run's state."""

from datetime import datetime
from typing import TypeAlias

from app.domain.json_values import Json
from app.domain.runs.runs import Done, Running, RunRecord, Waiting, status_of

RunActivity: TypeAlias = Running | Waiting | Done
"""The states that a checkpoint may give a run."""
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
    entry: dict[str, Json] = {
        "run_id": record.id,
        "status": status_of(state).value,
        "step_count": steps,
        "active_ms": round(active_seconds * 1000),
        "updated_at": round(at.timestamp() * 1000),
    }
    if reason is not None:
        entry["status_reason"] = reason
    return entry
