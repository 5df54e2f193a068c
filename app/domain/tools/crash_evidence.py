"""Evidence about a call that was running when its worker was lost."""

from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from app.domain.ids import WorkerId
from app.domain.json_values import JsonObject, without_none
from app.domain.timestamps import format_timestamp

MAX_STREAMED_CHARACTERS = 4000
"""The last characters of the call's output that are shown."""


class LostWorker(Struct, frozen=True):
    """The worker that executed the call; `host` and `pid` are None once its row is deleted."""

    id: WorkerId
    host: str | None
    pid: int | None
    heartbeat_at: datetime | None


class CrashEvidence(Struct, frozen=True):
    worker: LostWorker | None = None
    streamed: str = ""
    """The end of the call's streamed output."""
    progress: JsonObject | None = None
    """The call's last progress activity."""


def evidence_to_json(evidence: CrashEvidence) -> dict[str, Any]:
    """The evidence for a ticket, without unknown fields."""
    worker = None if evidence.worker is None else asdict(evidence.worker)
    if worker is not None and worker["heartbeat_at"] is not None:
        worker["heartbeat_at"] = format_timestamp(worker["heartbeat_at"])
    progress = None if evidence.progress is None else dict(evidence.progress)
    return without_none(
        {"worker": worker, "streamed": evidence.streamed or None, "progress": progress}
    )
