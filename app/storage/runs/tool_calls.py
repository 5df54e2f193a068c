"""Calls of open steps: what a takeover, or an end at rest, needs to know of each."""

from datetime import datetime

from sqlalchemy import Text, cast, select

from app.domain.ids import CallId, RunId, Tenant
from app.domain.threads.messages import ToolCall
from app.domain.tools.tool_calls import CallState, CallStatus, Effect, outcome_from_json
from app.storage.codec import Row, parsed
from app.storage.postgres.database import Connection, RawPool
from app.storage.tables import tool_calls

_OPEN = """
SELECT step_index, call_id, position, name, arguments, run_with, kept, status, effect, idempotency_key,
    started_at
FROM tool_calls WHERE tenant = $1 AND run_id = $2 ORDER BY position
"""


async def of_open_step(
    pool: RawPool, tenant: Tenant, run_id: RunId
) -> list[tuple[CallState, datetime | None]]:
    """The open step's calls in their order, with the time at which each was marked."""
    rows = await pool.fetch(_OPEN, tenant, run_id)
    return [(_state_of(row), row["started_at"]) for row in rows]


async def of_run(connection: Connection, tenant: Tenant, run_id: RunId) -> list[CallState]:
    """The same, under the locks of a command."""
    # The one value that may be any JSON, text too: decoded once, whoever reads it.
    arguments = cast(tool_calls.c.arguments, Text).label("arguments")
    others = [column for column in tool_calls.c if column.name != "arguments"]
    statement = (
        select(*others, arguments)
        .where(tool_calls.c.tenant == tenant, tool_calls.c.run_id == run_id)
        .order_by(tool_calls.c.position)
    )
    return [_state_of(row) for row in (await connection.execute(statement)).mappings()]


def _state_of(row: Row) -> CallState:
    kept = row["kept"]
    return CallState(
        call=ToolCall(CallId(row["call_id"]), row["name"], parsed(row["arguments"])),
        step_index=row["step_index"],
        position=row["position"],
        status=CallStatus(row["status"]),
        effect=Effect(row["effect"]),
        idempotency_key=row["idempotency_key"],
        run_with=parsed(row["run_with"]),
        unreported_outcome=None if kept is None else outcome_from_json(row["name"], parsed(kept)),
    )
