"""Due calls of `run_end` hooks, for runs that ended without their agent's code.

A worker claims a call for some time, and deletes its row when the hooks have returned. Until then no other worker
claims it. A call whose worker has died is due again.
"""

from datetime import timedelta

from msgspec import Struct
from sqlalchemy import ColumnElement, delete, func, insert, literal, or_, select, update

from app.domain.children.followups import CALL_RUN_END, CallRunEnd
from app.domain.ids import RunId, Tenant
from app.domain.json_values import JsonObject
from app.domain.runs.runs import RunRecord
from app.storage.postgres.database import Connection
from app.storage.queue.failed_followups import is_put_off
from app.storage.tables import pending_run_ends as table
from app.storage.tables import threads


class PendingRunEnd(Struct, frozen=True, kw_only=True):
    """The run's thread as it was at the end of the run."""

    log_end: int
    """The seq of the log's last message."""
    thread_state: JsonObject


async def add(connection: Connection, record: RunRecord) -> None:
    """Store the arguments of the hooks. The caller ends the run and has written its thread."""
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
    """The arguments of the hooks; None if no call is due."""
    statement = select(table).where(_is_of(tenant, run_id))
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        return None
    return PendingRunEnd(log_end=row["log_end"], thread_state=row["thread_state"] or {})


async def claim(
    connection: Connection, tenant: Tenant, run_id: RunId, *, seconds: float
) -> int | None:
    """Claim the call for these seconds; the claim's number, or None while another worker has it."""
    result = await connection.execute(
        update(table)
        .where(_is_of(tenant, run_id), _is_free())
        .values(claims=table.c.claims + 1, claimed_until=func.now() + timedelta(seconds=seconds))
        .returning(table.c.claims)
    )
    number: int | None = result.scalar_one_or_none()
    return number


async def finish(connection: Connection, tenant: Tenant, run_id: RunId, claim: int) -> bool:
    """Delete a call whose hooks have returned; False if another worker has claimed it since."""
    result = await connection.execute(
        delete(table).where(_is_of(tenant, run_id), table.c.claims == claim)
    )
    return result.rowcount == 1


async def remove(connection: Connection, tenant: Tenant, run_id: RunId) -> bool:
    """Delete the call without its hooks; False if there was none."""
    result = await connection.execute(delete(table).where(_is_of(tenant, run_id)))
    return result.rowcount == 1


async def overdue(connection: Connection, *, grace: float, limit: int) -> list[CallRunEnd]:
    """Calls that were due `grace` ago, have no claim and don't wait for another try; for the sweeper."""
    due_before = func.now() - timedelta(seconds=grace)
    statement = (
        select(table.c.tenant, table.c.run_id)
        .where(
            table.c.created_at < due_before,
            _is_free(),
            ~is_put_off(literal(CALL_RUN_END), table.c.tenant, table.c.run_id, due_before),
        )
        .order_by(table.c.created_at)
        .limit(limit)
    )
    rows = await connection.execute(statement)
    return [CallRunEnd(tenant=Tenant(row.tenant), run_id=RunId(row.run_id)) for row in rows]


def _is_of(tenant: Tenant, run_id: RunId) -> ColumnElement[bool]:
    return (table.c.tenant == tenant) & (table.c.run_id == run_id)


def _is_free() -> ColumnElement[bool]:
    return or_(table.c.claimed_until.is_(None), table.c.claimed_until < func.now())
