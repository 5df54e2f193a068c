"""Rollbacks: stretches of a thread's log that don't count any more, in favour of another run.

The log stays as it is, and so does every range that refers to it. What is left out is a view: of models
always, of lists unless they are asked for all.
"""

from datetime import datetime

from sqlalchemy import cast, func, insert, literal, select

from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunRecord
from app.domain.threads.messages import MessageRange
from app.storage.postgres.database import Connection
from app.storage.tables import rollbacks
from app.storage.threads import threads


async def add(
    connection: Connection, record: RunRecord, by: RunId, log_ends_with: int, at: datetime
) -> MessageRange | None:
    """Take out a run that has just ended: its turn, from the message that it began with to the end of
    the log, and what it has changed in the thread's memory. The caller holds the thread's lock.

    A retry shares its turn with the runs that it was to make up for: they go together.
    """
    await threads.restore_state(connection, record.tenant, record.thread_id, record.id)
    begun = None if record.input is None else record.input.range
    stretch = None if begun is None else MessageRange.of(begun.from_seq, log_ends_with)
    if stretch is not None:
        await connection.execute(
            insert(rollbacks).values(
                tenant=record.tenant,
                thread_id=record.thread_id,
                from_seq=stretch.from_seq,
                to_seq=stretch.to_seq,
                run_id=record.id,
                by_run_id=by,
                created_at=at,
            )
        )
    return stretch


async def touch(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, stretch: MessageRange
) -> bool:
    """Whether something within a stretch doesn't count any more."""
    statement = (
        select(literal(True))
        .where(
            rollbacks.c.tenant == tenant,
            rollbacks.c.thread_id == thread_id,
            rollbacks.c.from_seq <= stretch.to_seq,
            rollbacks.c.to_seq >= stretch.from_seq,
        )
        .limit(1)
    )
    return (await connection.execute(statement)).first() is not None


async def copy(
    connection: Connection, tenant: Tenant, origin: ThreadId, copy_: ThreadId, *, up_to: int
) -> None:
    """Let the same messages not count in a new thread that has them up to a place."""
    changed = {
        "thread_id": cast(copy_, rollbacks.c.thread_id.type),
        "to_seq": func.least(rollbacks.c.to_seq, up_to),
    }
    columns = [changed.get(column.name, column) for column in rollbacks.c]
    statement = select(*columns).where(
        rollbacks.c.tenant == tenant,
        rollbacks.c.thread_id == origin,
        rollbacks.c.from_seq <= up_to,
    )
    names = [column.name for column in rollbacks.c]
    await connection.execute(insert(rollbacks).from_select(names, statement))
