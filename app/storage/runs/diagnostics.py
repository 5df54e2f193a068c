"""What keeps a run where it is: its owner's heartbeat, its place in line, its delivery."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select

from app.domain.ids import WorkerId
from app.domain.runs.runs import RunRecord, RunStatus
from app.storage.postgres.database import Connection
from app.storage.runs.thread_queue import PLACE
from app.storage.tables import runs, workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that executes a run, or did when it was last heard of."""

    id: WorkerId
    host: str
    pid: int
    heartbeat_at: datetime
    is_alive: bool


async def owner(
    connection: Connection, worker: WorkerId, *, heartbeat_timeout: float
) -> Owner | None:
    """By the database's clock, as whoever would claim the run judges it."""
    alive = workers.c.heartbeat_at > func.now() - timedelta(seconds=heartbeat_timeout)
    statement = select(
        workers.c.host, workers.c.pid, workers.c.heartbeat_at, alive.label("is_alive")
    ).where(workers.c.id == worker)
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        return None
    return Owner(
        id=worker,
        host=row.host,
        pid=row.pid,
        heartbeat_at=row.heartbeat_at,
        is_alive=row.is_alive,
    )


async def living_workers(connection: Connection, *, heartbeat_timeout: float) -> int:
    """How many processes there are that execute runs."""
    statement = (
        select(func.count())
        .select_from(workers)
        .where(
            workers.c.role != "api",
            workers.c.heartbeat_at > func.now() - timedelta(seconds=heartbeat_timeout),
        )
    )
    return int((await connection.execute(statement)).scalar_one())


async def queue_position(connection: Connection, record: RunRecord) -> int:
    """1 for the run that is the next to occupy its thread."""
    own = (
        select(PLACE)
        .where(runs.c.tenant == record.tenant, runs.c.id == record.id)
        .correlate(None)
        .scalar_subquery()
    )
    statement = (
        select(func.count())
        .select_from(runs)
        .where(
            runs.c.tenant == record.tenant,
            runs.c.thread_id == record.thread_id,
            runs.c.status == RunStatus.CREATED.value,
            ~runs.c.admitted,
            PLACE <= own,
        )
    )
    return int((await connection.execute(statement)).scalar_one())
