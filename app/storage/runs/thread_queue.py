"""The runs that queue for a thread.

They are ordered by `events_from`, the number of a run's first event, which is assigned under the thread's
lock. Times can't order them, because the clocks of replicas may differ.
"""

from sqlalchemy import ColumnElement, and_, func, select, update

from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunStatus
from app.storage.postgres.database import Connection
from app.storage.runs.runs import RunKey
from app.storage.tables import runs


def _is_queued(tenant: Tenant, thread_id: ThreadId) -> ColumnElement[bool]:
    return and_(
        runs.c.tenant == tenant,
        runs.c.thread_id == thread_id,
        runs.c.status == RunStatus.CREATED.value,
        ~runs.c.admitted,
    )


async def next_queued(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> RunKey | None:
    """The first queued run of a thread; the caller holds the thread's lock."""
    statement = (
        select(runs.c.id, runs.c.attempt)
        .where(_is_queued(tenant, thread_id))
        .order_by(runs.c.events_from)
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
        .order_by(runs.c.events_from)
        .with_for_update(key_share=True)
    )
    return [RunId(id) for id in await connection.scalars(statement)]
