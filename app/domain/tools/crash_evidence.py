"""Traces: what is known of a call that was running when its worker was lost."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.domain.ids import WorkerId
from app.domain.json_values import JsonObject
from app.domain.timestamps import format_timestamp

MAX_STREAMED_CHARACTERS = 4000
"""Characters of its output that are shown: the last ones say most."""


@dataclass(frozen=True, slots=True)
class LostWorker:
    """The process that had the call; where it ran is forgotten in time."""

    id: WorkerId
    host: str | None
    pid: int | None
    heartbeat_at: datetime | None


@dataclass(frozen=True, slots=True)
class CrashEvidence:
    worker: LostWorker | None = None
    streamed: str = ""
    """The end of what it showed of its output."""
    progress: JsonObject | None = None
    """How far it said that it was."""


def evidence_to_json(trace: CrashEvidence) -> dict[str, Any]:
    """As evidence on a ticket; what isn't known isn't there."""
    body: dict[str, Any] = {}
    if trace.worker is not None:
        last = trace.worker.heartbeat_at
        body["worker"] = {
            "id": trace.worker.id,
            "host": trace.worker.host,
            "pid": trace.worker.pid,
            "heartbeat_at": None if last is None else format_timestamp(last),
        }
    if trace.streamed:
        body["streamed"] = trace.streamed
    if trace.progress is not None:
        body["progress"] = dict(trace.progress)
    return body
