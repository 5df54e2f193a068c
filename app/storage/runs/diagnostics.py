"""Why a run doesn't progress: its owner's heartbeat, living workers, its position in the thread's queue."""

from datetime import datetime, timedelta

from msgspec import Struct
from sqlalchemy import func, select

from app.domain.ids import WorkerId
from app.domain.runs.runs import RunRecord, RunStatus
from app.storage.postgres.database import Connection
from app.storage.tables import runs, workers


class Owner(Struct, frozen=True, kw_only=True):
    """The process that owns a run, with its last heartbeat."""

    id: WorkerId
    host: str
    pid: int
    heartbeat_at: datetime
    is_alive: bool


async def owner(
    connection: Connection, worker: WorkerId, *, heartbeat_timeout: float
) -> Owner | None:
    """The owner of a run. `is_alive` uses the database's clock, as a claim does."""
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
    """The number of living processes that execute runs."""
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
    """The position of a run in its thread's queue; 1 is admitted next."""
    own = (
        select(runs.c.events_from)
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
            runs.c.events_from <= own,
        )
    )
    return int((await connection.execute(statement)).scalar_one())
