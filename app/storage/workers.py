"""Workers: one row per process, kept alive by one heartbeat a second."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, func, select

from app.domain.ids import RunId, Tenant, ThreadId, WorkerId
from app.storage.postgres.connect import RawConnection
from app.storage.postgres.database import Connection, RawPool
from app.storage.runs.runs import RunKey
from app.storage.tables import runs, workers

_BEAT = """
WITH me AS (
    INSERT INTO workers AS w (id, role, host, pid) VALUES ($1, $2, $3, $4)
    ON CONFLICT (id) DO UPDATE SET heartbeat_at = now()
)
SELECT tenant, thread_id, id, attempt, losses, cancel_requested_at, cancel_reason FROM runs
WHERE owner = $1 AND admitted AND status IN ('created', 'running')
"""


@dataclass(frozen=True, slots=True)
class OwnedRun:
    """A run that a process owns, by the database: how many workers were lost over it without progress,
    and whether somebody wants it cancelled."""

    key: RunKey
    losses: int
    cancel_requested: bool
    reason: str | None


async def heartbeat(
    pool: RawPool, worker: WorkerId, role: str, host: str, pid: int
) -> list[OwnedRun]:
    """Say that this process is alive, and learn what it owns."""
    return [
        OwnedRun(
            RunKey(
                Tenant(row["tenant"]), ThreadId(row["thread_id"]), RunId(row["id"]), row["attempt"]
            ),
            row["losses"],
            row["cancel_requested_at"] is not None,
            row["cancel_reason"],
        )
        for row in await pool.fetch(_BEAT, worker, role, host, pid)
    ]


async def touch(connection: RawConnection, worker: WorkerId) -> None:
    """Say that a process is alive which can't say so itself; one that has left stays away."""
    await connection.execute("UPDATE workers SET heartbeat_at = now() WHERE id = $1", worker)


async def remove_dead(connection: Connection, older_than: float) -> int:
    """Forget processes that died long ago and own nothing."""
    owned = select(runs.c.id).where(runs.c.owner == workers.c.id)
    statement = delete(workers).where(
        workers.c.heartbeat_at < func.now() - timedelta(seconds=older_than), ~owned.exists()
    )
    return (await connection.execute(statement)).rowcount


async def remove(pool: RawPool, worker: WorkerId) -> None:
    """Take this process off the list, once it owns nothing."""
    await pool.execute("DELETE FROM workers WHERE id = $1", worker)
