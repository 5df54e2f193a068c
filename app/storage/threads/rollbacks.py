"""Rollbacks: ranges of a thread's log that another run has replaced.

The messages and all ranges that refer to them stay. Readers skip these ranges: models always, lists unless
the client asks for them.
"""

from datetime import datetime

from sqlalchemy import cast, func, insert, literal, select

from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunRecord
from app.domain.threads.messages import MessageRange
from app.storage.postgres.database import Connection
from app.storage.postgres.named_parameters import NamedSql
from app.storage.tables import rollbacks
from app.storage.threads import threads


async def add(
    connection: Connection, record: RunRecord, by: RunId, log_ends_with: int, at: datetime
) -> MessageRange | None:
    """Roll back a run that has just ended: its messages up to the end of the log, and the thread's state.

    A retry starts at the same message as the run that it retries, so both are rolled back. The caller holds
    the thread's lock.
    """
    await threads.restore_state(connection, record.tenant, record.thread_id, record.id)
    input_range = None if record.input is None else record.input.range
    range_ = None if input_range is None else MessageRange.of(input_range.from_seq, log_ends_with)
    if range_ is not None:
        await connection.execute(
            insert(rollbacks).values(
                tenant=record.tenant,
                thread_id=record.thread_id,
                from_seq=range_.from_seq,
                to_seq=range_.to_seq,
                run_id=record.id,
                by_run_id=by,
                created_at=at,
            )
        )
    return range_


# Ranges never overlap: each covers consecutive messages that no earlier one covers. The run that replaces a tail is
# in both columns, because the tail may be of several runs.
_ADD_TAIL = NamedSql("""
INSERT INTO rollbacks (tenant, thread_id, from_seq, to_seq, run_id, by_run_id, created_at)
SELECT :tenant, :thread_id, min(seq), max(seq), :by, :by, :at FROM (
    SELECT m.seq, m.seq - row_number() OVER (ORDER BY m.seq) AS stretch FROM messages m
    WHERE m.tenant = :tenant AND m.thread_id = :thread_id AND m.seq >= :from_seq AND NOT EXISTS (
        SELECT FROM rollbacks b WHERE b.tenant = m.tenant AND b.thread_id = m.thread_id
            AND m.seq BETWEEN b.from_seq AND b.to_seq)
) AS visible GROUP BY stretch
""")


async def add_tail(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    from_seq: int,
    *,
    by: RunId,
    at: datetime,
) -> None:
    """Roll back all messages from `from_seq` on. The caller holds the thread's lock."""
    await connection.driver.execute(
        *_ADD_TAIL(tenant=tenant, thread_id=thread_id, from_seq=from_seq, by=by, at=at)
    )


async def overlaps(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, range_: MessageRange
) -> bool:
    """Whether a rollback overlaps this range."""
    statement = (
        select(literal(True))
        .where(
            rollbacks.c.tenant == tenant,
            rollbacks.c.thread_id == thread_id,
            rollbacks.c.from_seq <= range_.to_seq,
            rollbacks.c.to_seq >= range_.from_seq,
        )
        .limit(1)
    )
    return (await connection.execute(statement)).first() is not None


async def copy(
    connection: Connection, tenant: Tenant, origin: ThreadId, copy_: ThreadId, *, up_to: int
) -> None:
    """Copy the rollbacks of messages up to a seq to a copy of the thread."""
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
