"""Calls of open steps: what a takeover needs to know of each."""

from datetime import datetime

from app.domain.ids import CallId, RunId, Tenant
from app.domain.messages import ToolCall
from app.domain.tool_calls import CallState, CallStatus, Effect, kept_from_json
from app.storage.codec import parsed
from app.storage.database import RawPool

_OPEN = """
SELECT step_index, call_id, position, name, arguments, run_with, kept, status, effect, idempotency_key,
    started_at
FROM tool_calls WHERE tenant = $1 AND run_id = $2 ORDER BY position
"""


async def of_open_step(
    pool: RawPool, tenant: Tenant, run_id: RunId
) -> list[tuple[CallState, datetime | None]]:
    """The open step's calls in their order, with the time at which each was marked."""
    return [
        (
            CallState(
                call=ToolCall(CallId(row["call_id"]), row["name"], parsed(row["arguments"])),
                step_index=row["step_index"],
                position=row["position"],
                status=CallStatus(row["status"]),
                effect=Effect(row["effect"]),
                idempotency_key=row["idempotency_key"],
                run_with=parsed(row["run_with"]),
                kept=None
                if row["kept"] is None
                else kept_from_json(row["name"], parsed(row["kept"])),
            ),
            row["started_at"],
        )
        for row in await pool.fetch(_OPEN, tenant, run_id)
    ]
