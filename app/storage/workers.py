"""Workers: one row per process, with a heartbeat every second."""

from datetime import datetime, timedelta

from msgspec import Struct
from sqlalchemy import delete, func, select

from app.domain.ids import RunId, Tenant, ThreadId, WorkerId
from app.domain.slices import PageRequest, Slice
from app.storage.codec import Row
from app.storage.page_rows import page_of
from app.storage.postgres.connect import RawConnection
from app.storage.postgres.database import Connection, RawPool
from app.storage.postgres.named_parameters import NamedSql
from app.storage.runs.runs import RunKey
from app.storage.tables import runs, workers

# A process that died without deleting its row counts as another process for a minute, which does no harm.
_HEARTBEAT = NamedSql("""
WITH worker AS (
    INSERT INTO workers AS w (id, role, host, pid) VALUES (:id, :role, :host, :pid)
    ON CONFLICT (id) DO UPDATE SET heartbeat_at = now()
), others AS (
    SELECT EXISTS (
        SELECT FROM workers WHERE id <> :id AND heartbeat_at > now() - interval '1 minute'
    ) AS are_alive
)
SELECT others.are_alive, r.tenant, r.thread_id, r.id, r.attempt, r.losses, r.cancel_requested_at,
    r.cancel_reason
FROM others LEFT JOIN runs r ON r.owner = :id AND r.admitted AND r.status IN ('created', 'running')
""")


class OwnedRun(Struct, frozen=True):
    """A run that a process owns, with its losses since the last progress and its cancel request."""

    key: RunKey
    losses: int
    cancel_requested: bool
    reason: str | None


class HeartbeatAnswer(Struct, frozen=True):
    """The runs that a process owns, and whether other processes live."""

    owned: list[OwnedRun]
    has_others: bool


class ListedWorker(Struct, frozen=True, kw_only=True):
    """A process that serves or executes runs."""

    id: WorkerId
    role: str
    host: str
    pid: int
    started_at: datetime
    heartbeat_at: datetime
    is_alive: bool
    executing: int
    """The tenant's runs that the process owns."""


async def heartbeat(
    pool: RawPool, worker: WorkerId, role: str, host: str, pid: int
) -> HeartbeatAnswer:
    """Write this process's heartbeat, and read what it must know."""
    rows = await pool.fetch(*_HEARTBEAT(id=worker, role=role, host=host, pid=pid))
    owned = [
        OwnedRun(
            RunKey(
                Tenant(row["tenant"]), ThreadId(row["thread_id"]), RunId(row["id"]), row["attempt"]
            ),
            row["losses"],
            row["cancel_requested_at"] is not None,
            row["cancel_reason"],
        )
        for row in rows
        if row["id"] is not None
    ]
    return HeartbeatAnswer(owned, rows[0]["are_alive"])


async def touch(connection: RawConnection, worker: WorkerId) -> None:
    """Write the heartbeat of a process whose loop is blocked. A removed row stays removed."""
    await connection.execute("UPDATE workers SET heartbeat_at = now() WHERE id = $1", worker)


async def remove_dead(connection: Connection, older_than: float) -> int:
    """Delete rows of processes that died long ago and own no runs."""
    owned = select(runs.c.id).where(runs.c.owner == workers.c.id)
    statement = delete(workers).where(
        workers.c.heartbeat_at < func.now() - timedelta(seconds=older_than), ~owned.exists()
    )
    return (await connection.execute(statement)).rowcount


async def remove(pool: RawPool, worker: WorkerId) -> None:
    """Delete this process's row, once it owns nothing."""
    await pool.execute("DELETE FROM workers WHERE id = $1", worker)


async def page(
    connection: Connection, tenant: Tenant, requested: PageRequest, *, heartbeat_timeout: float
) -> Slice[ListedWorker]:
    """Processes by their start, with the number of the tenant's runs that each of them owns."""
    owned = (
        select(func.count())
        .select_from(runs)
        .where(
            runs.c.owner == workers.c.id,
            # As in the partial index `runs_moving`.
            runs.c.admitted,
            runs.c.status.in_(("created", "running")),
            runs.c.tenant == tenant,
        )
        .scalar_subquery()
    )
    alive = workers.c.heartbeat_at > func.now() - timedelta(seconds=heartbeat_timeout)
    statement = select(workers, alive.label("is_alive"), owned.label("executing"))
    return await page_of(connection, statement, _listed, requested, by=("started_at", "id"))


def _listed(row: Row) -> ListedWorker:
    names = ("role", "host", "pid", "started_at", "heartbeat_at", "is_alive", "executing")
    return ListedWorker(id=WorkerId(str(row["id"])), **{name: row[name] for name in names})
