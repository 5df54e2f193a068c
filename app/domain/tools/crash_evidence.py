"""Evidence about a call that was running when its worker was lost."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.domain.ids import WorkerId
from app.domain.json_values import JsonObject
from app.domain.timestamps import format_timestamp

MAX_STREAMED_CHARACTERS = 4000
"""The last characters of the call's output that are shown."""


@dataclass(frozen=True, slots=True)
class LostWorker:
    """The worker that executed the call; `host` and `pid` are None once its row is deleted."""

    id: WorkerId
    host: str | None
    pid: int | None
    heartbeat_at: datetime | None


@dataclass(frozen=True, slots=True)
class CrashEvidence:
    worker: LostWorker | None = None
    streamed: str = ""
    """The end of the call's streamed output."""
    progress: JsonObject | None = None
    """The call's last progress activity."""


def evidence_to_json(evidence: CrashEvidence) -> dict[str, Any]:
    """The evidence for a ticket, without unknown fields."""
    body: dict[str, Any] = {}
    if evidence.worker is not None:
        last = evidence.worker.heartbeat_at
        body["worker"] = {
            "id": evidence.worker.id,
            "host": evidence.worker.host,
            "pid": evidence.worker.pid,
            "heartbeat_at": None if last is None else format_timestamp(last),
        }
    if evidence.streamed:
        body["streamed"] = evidence.streamed
    if evidence.progress is not None:
        body["progress"] = dict(evidence.progress)
    return body
