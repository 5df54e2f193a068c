"""The queue of a thread: created runs that aren't admitted yet. The thread's lock orders them."""

from sqlalchemy import ColumnElement, and_, func, select, update

from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunStatus
from app.storage.postgres.database import Connection
from app.storage.runs.runs import RunKey
from app.storage.tables import runs

QUEUE_POSITION = func.coalesce(runs.c.place, runs.c.events_from)
"""The position of a run in its thread's queue; lower is earlier.

It is the number of the run's first event, which the thread's lock orders, because clocks may differ.
`place` overrides it once the queue was reordered.
"""


def _is_queued(tenant: Tenant, thread_id: ThreadId) -> ColumnElement[bool]:
    return and_(
        runs.c.tenant == tenant,
        runs.c.thread_id == thread_id,
        runs.c.status == RunStatus.CREATED.value,
        ~runs.c.admitted,
    )


async def queued_runs(
    connection: Connection, tenant: Tenant, thread_id: ThreadId
) -> list[tuple[RunId, int]]:
    """The queued runs of a thread with their positions, in order. The caller holds the thread's lock."""
    statement = (
        select(runs.c.id, QUEUE_POSITION.label("place"))
        .where(_is_queued(tenant, thread_id))
        .order_by(QUEUE_POSITION)
    )
    return [(RunId(row.id), row.place) for row in await connection.execute(statement)]


async def set_position(connection: Connection, tenant: Tenant, run_id: RunId, place: int) -> None:
    """Set a run's queue position. The caller holds the thread's lock and uses each position once."""
    await connection.execute(
        update(runs).where(runs.c.tenant == tenant, runs.c.id == run_id).values(place=place)
    )


async def next_queued(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> RunKey | None:
    """The first queued run of a thread. The caller holds the thread's lock."""
    statement = (
        select(runs.c.id, runs.c.attempt)
        .where(_is_queued(tenant, thread_id))
        .order_by(QUEUE_POSITION)
        .limit(1)
    )
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else RunKey(tenant, thread_id, RunId(row.id), row.attempt)


async def mark_admitted(connection: Connection, key: RunKey) -> bool:
    """Let a queued run occupy its thread. A unique index refuses a second one.

    False if the run is paused: it occupies the thread, but isn't executed before it is resumed.
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
    """The runs of a thread that aren't done, in queue order, locked until commit.

    The caller holds the thread's lock.
    """
    statement = (
        select(runs.c.id)
        .where(
            runs.c.tenant == tenant,
            runs.c.thread_id == thread_id,
            runs.c.status != RunStatus.DONE.value,
        )
        .order_by(QUEUE_POSITION)
        .with_for_update(key_share=True)
    )
    return [RunId(id) for id in await connection.scalars(statement)]
