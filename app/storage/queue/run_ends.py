"""Runs that have ended without their agent's code: what their `run_end` hooks will be shown, until a worker
claims the call. A claim deletes the row, so each run's hooks are called by one worker only.
"""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, func, insert, literal, select

from app.domain.children.followups import CALL_RUN_END, CallRunEnd
from app.domain.ids import RunId, Tenant
from app.domain.json_values import JsonObject
from app.domain.runs.runs import RunRecord
from app.storage.codec import parsed
from app.storage.postgres.database import Connection
from app.storage.queue.failed_followups import is_put_off
from app.storage.tables import pending_run_ends as table
from app.storage.tables import threads


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRunEnd:
    """The run's thread as it was at the end of the run."""

    log_end: int
    """The seq of the log's last message."""
    thread_state: JsonObject


async def add(connection: Connection, record: RunRecord) -> None:
    """Keep what the hooks will be shown. The caller ends the run and has written its thread."""
    await connection.execute(
        insert(table).from_select(
            ["tenant", "run_id", "log_end", "thread_state"],
            select(
                threads.c.tenant,
                literal(record.id, table.c.run_id.type),
                threads.c.next_message_seq - 1,
                func.coalesce(threads.c.state, literal({}, table.c.thread_state.type)),
            ).where(threads.c.tenant == record.tenant, threads.c.id == record.thread_id),
        )
    )


async def find(connection: Connection, tenant: Tenant, run_id: RunId) -> PendingRunEnd | None:
    """What the hooks will be shown; None when no call is due any more."""
    statement = select(table).where(table.c.tenant == tenant, table.c.run_id == run_id)
    row = (await connection.execute(statement)).mappings().one_or_none()
    if row is None:
        return None
    return PendingRunEnd(log_end=row["log_end"], thread_state=parsed(row["thread_state"]) or {})


async def claim(connection: Connection, tenant: Tenant, run_id: RunId) -> bool:
    """Take the call for this worker, which is then the only one; False when it was taken before."""
    result = await connection.execute(
        delete(table).where(table.c.tenant == tenant, table.c.run_id == run_id)
    )
    return result.rowcount == 1


async def overdue(connection: Connection, *, grace: float, limit: int) -> list[CallRunEnd]:
    """Calls that were due `grace` ago and don't wait for another try; for the sweeper."""
    long_ago = func.now() - timedelta(seconds=grace)
    statement = (
        select(table.c.tenant, table.c.run_id)
        .where(
            table.c.created_at < long_ago,
            ~is_put_off(literal(CALL_RUN_END), table.c.tenant, table.c.run_id, long_ago),
        )
        .order_by(table.c.created_at)
        .limit(limit)
    )
    rows = await connection.execute(statement)
    return [CallRunEnd(tenant=Tenant(row.tenant), run_id=RunId(row.run_id)) for row in rows]
