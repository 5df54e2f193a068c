"""Workers: one row per process, with a heartbeat every second."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, func, select

from app.domain.ids import RunId, Tenant, ThreadId, WorkerId
from app.storage.postgres.connect import RawConnection
from app.storage.postgres.database import Connection, RawPool
from app.storage.runs.runs import RunKey
from app.storage.tables import runs, workers

_HEARTBEAT = """
WITH worker AS (
    INSERT INTO workers AS w (id, role, host, pid) VALUES ($1, $2, $3, $4)
    ON CONFLICT (id) DO UPDATE SET heartbeat_at = now()
)
SELECT tenant, thread_id, id, attempt, losses, cancel_requested_at, cancel_reason FROM runs
WHERE owner = $1 AND admitted AND status IN ('created', 'running')
"""


@dataclass(frozen=True, slots=True)
class OwnedRun:
    """A run that a process owns, with its losses since the last progress and its cancel request."""

    key: RunKey
    losses: int
    cancel_requested: bool
    reason: str | None


async def heartbeat(
    pool: RawPool, worker: WorkerId, role: str, host: str, pid: int
) -> list[OwnedRun]:
    """Write this process's heartbeat, and return the runs that it owns."""
    return [
        OwnedRun(
            RunKey(
                Tenant(row["tenant"]), ThreadId(row["thread_id"]), RunId(row["id"]), row["attempt"]
            ),
            row["losses"],
            row["cancel_requested_at"] is not None,
            row["cancel_reason"],
        )
        for row in await pool.fetch(_HEARTBEAT, worker, role, host, pid)
    ]


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
