"""The line in front of a thread: in which order its runs have it, which its lock keeps."""

from sqlalchemy import ColumnElement, and_, func, select, update

from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunStatus
from app.storage.postgres.database import Connection
from app.storage.runs.runs import RunKey
from app.storage.tables import runs

PLACE = func.coalesce(runs.c.place, runs.c.events_from)
"""Where a run stands on its thread: behind every run with a lesser place.

As its first event was numbered, which the thread's lock orders (clocks may disagree), unless it was given
another run's place.
"""


def _in_line(tenant: Tenant, thread_id: ThreadId) -> ColumnElement[bool]:
    return and_(
        runs.c.tenant == tenant,
        runs.c.thread_id == thread_id,
        runs.c.status == RunStatus.CREATED.value,
        ~runs.c.admitted,
    )


async def queued_runs(
    connection: Connection, tenant: Tenant, thread_id: ThreadId
) -> list[tuple[RunId, int]]:
    """The runs that queue for a thread, with their places, in order; the caller holds its lock."""
    statement = (
        select(runs.c.id, PLACE.label("place")).where(_in_line(tenant, thread_id)).order_by(PLACE)
    )
    return [(RunId(row.id), row.place) for row in await connection.execute(statement)]


async def set_position(connection: Connection, tenant: Tenant, run_id: RunId, place: int) -> None:
    """Stand elsewhere in line; the caller holds the thread's lock, and gives each place once."""
    await connection.execute(
        update(runs).where(runs.c.tenant == tenant, runs.c.id == run_id).values(place=place)
    )


async def next_queued(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> RunKey | None:
    """The run that is the first in line for a thread; the caller holds the thread's lock."""
    statement = (
        select(runs.c.id, runs.c.attempt)
        .where(_in_line(tenant, thread_id))
        .order_by(PLACE)
        .limit(1)
    )
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else RunKey(tenant, thread_id, RunId(row.id), row.attempt)


async def mark_admitted(connection: Connection, key: RunKey) -> bool:
    """Let a queued run occupy its thread; the unique index refuses a second one.

    False when the run is paused: it occupies the thread, and isn't executed before it is resumed.
    """
    statement = (
        update(runs)
        .where(runs.c.tenant == key.tenant, runs.c.id == key.run_id)
        .values(admitted=True, updated_at=func.now())
        .returning(runs.c.pause_requested_at.is_(None))
    )
    return bool((await connection.execute(statement)).scalar_one())


async def lock_unfinished(
    connection: Connection, tenant: Tenant, thread_id: ThreadId
) -> list[RunId]:
    """The runs of a thread that haven't ended, in the order of their places, locked until the commit; the
    caller holds the thread's lock."""
    statement = (
        select(runs.c.id)
        .where(
            runs.c.tenant == tenant,
            runs.c.thread_id == thread_id,
            runs.c.status != RunStatus.DONE.value,
        )
        .order_by(PLACE)
        .with_for_update(key_share=True)
    )
    return [RunId(id) for id in await connection.scalars(statement)]
