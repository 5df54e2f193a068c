"""Reads the tool calls of a run's open step, for a takeover or for the end of a suspended run."""

from sqlalchemy import select

from app.domain.ids import CallId, RunId, Tenant
from app.domain.threads.messages import ToolCall
from app.domain.tools.tool_calls import CallState, CallStatus, Effect, outcome_from_json
from app.storage.codec import Row
from app.storage.postgres.database import Connection
from app.storage.tables import tool_calls


async def of_run(connection: Connection, tenant: Tenant, run_id: RunId) -> list[CallState]:
    """The calls of the open step in order, read in a command's transaction."""
    statement = (
        select(tool_calls)
        .where(tool_calls.c.tenant == tenant, tool_calls.c.run_id == run_id)
        .order_by(tool_calls.c.position)
    )
    return [call_of(row) for row in (await connection.execute(statement))]


def call_of(row: Row) -> CallState:
    """A call of a row, or of a row as JSON."""
    outcome = row["unreported_outcome"]
    return CallState(
        call=ToolCall(CallId(row["call_id"]), row["name"], row["arguments"]),
        step_index=row["step_index"],
        position=row["position"],
        status=CallStatus(row["status"]),
        effect=Effect(row["effect"]),
        idempotency_key=row["idempotency_key"],
        edited_arguments=row["edited_arguments"],
        tool_digest=row["tool_digest"],
        unreported_outcome=None if outcome is None else outcome_from_json(row["name"], outcome),
    )
