"""A thread's log: appended under the thread's lock, read by stretches, never changed.

What was rolled back is left out of it where a model reads, and where a list isn't asked for all.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import cast, func, insert, select
from sqlalchemy.dialects.postgresql import JSONPATH

from app.clock import yield_to_loop
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunRecord
from app.domain.slices import Slice
from app.domain.threads.messages import LoggedMessage, Message, Role, Visibility
from app.storage.codec import Row, message_columns, message_of, parsed
from app.storage.page_rows import page_rows
from app.storage.postgres.database import Connection, RawPool
from app.storage.tables import messages, rollbacks

SLICE_OF_HISTORY = 250_000
"""Bytes, roughly, that are decoded without a pause."""

_HISTORY = """
SELECT seq, message_id, role, visibility, content, tool_calls, tool_call_id, produced_by_run,
    step_index, ran_with, created_at
FROM messages m WHERE tenant = $1 AND thread_id = $2 AND NOT EXISTS (
    SELECT FROM rollbacks b WHERE b.tenant = m.tenant AND b.thread_id = m.thread_id
        AND m.seq BETWEEN b.from_seq AND b.to_seq)
ORDER BY seq
"""


async def history(pool: RawPool, tenant: Tenant, thread_id: ThreadId) -> list[LoggedMessage]:
    """The whole log as it counts, for the run that is about to continue it.

    A log may be long: other tasks of the loop get their turn while it is decoded.
    """
    return await _decoded(await pool.fetch(_HISTORY, tenant, thread_id))


async def _decoded(rows: Sequence[Row]) -> list[LoggedMessage]:
    log: list[LoggedMessage] = []
    size = 0
    for row in rows:
        log.append(message_of(row))
        size += 500 + len(row["content"])
        if size > SLICE_OF_HISTORY:
            size = 0
            await yield_to_loop()
    return log


_HISTORY_AT_END = """
SELECT seq, message_id, role, visibility, content, tool_calls, tool_call_id, produced_by_run,
    step_index, ran_with, created_at
FROM messages m WHERE tenant = $1 AND thread_id = $2 AND seq <= $4 AND NOT EXISTS (
    SELECT FROM rollbacks b WHERE b.tenant = m.tenant AND b.thread_id = m.thread_id
        AND m.seq BETWEEN b.from_seq AND b.to_seq AND b.run_id <> $3 AND b.to_seq <= $4)
ORDER BY seq
"""


async def history_at_end(
    pool: RawPool, tenant: Tenant, thread_id: ThreadId, run_id: RunId, log_end: int
) -> list[LoggedMessage]:
    """The log as it counted when a run ended: without later messages, and with the run's own messages
    even if it was rolled back."""
    return await _decoded(await pool.fetch(_HISTORY_AT_END, tenant, thread_id, run_id, log_end))


_A_TEXT = '$[*] ? (@.type == "text" && @.text != "")'


async def last_words(connection: Connection, record: RunRecord) -> LoggedMessage | None:
    """The last message with a text that the assistant has written in a run."""
    written = record.output.range
    if written is None:
        return None
    statement = (
        select(messages)
        .where(
            messages.c.tenant == record.tenant,
            messages.c.thread_id == record.thread_id,
            messages.c.seq.between(written.from_seq, written.to_seq),
            messages.c.produced_by_run == record.id,
            messages.c.role == Role.ASSISTANT.value,
            func.jsonb_path_exists(messages.c.content, cast(_A_TEXT, JSONPATH)),
        )
        .order_by(messages.c.seq.desc())
        .limit(1)
    )
    row = (await connection.execute(statement)).mappings().one_or_none()
    return None if row is None else message_of(row)


async def append(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    next_seq: int,
    new: Sequence[Message],
) -> None:
    """Write messages from `next_seq` on; the caller holds the thread's lock and advances it."""
    rows = []
    for place, message in enumerate(new):
        columns = message_columns(message)
        columns["content"] = parsed(columns["content"])
        columns["tool_calls"] = parsed(columns["tool_calls"])
        columns["ran_with"] = parsed(columns["ran_with"])
        rows.append({"tenant": tenant, "thread_id": thread_id, "seq": next_seq + place, **columns})
    if rows:
        await connection.execute(insert(messages), rows)


async def since(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, first_seq: int
) -> list[LoggedMessage]:
    """The log from a place on."""
    statement = (
        select(messages)
        .where(
            messages.c.tenant == tenant,
            messages.c.thread_id == thread_id,
            messages.c.seq >= first_seq,
        )
        .order_by(messages.c.seq)
    )
    rows = await connection.execute(statement)
    return [message_of(row) for row in rows.mappings()]


async def copy(
    connection: Connection, tenant: Tenant, origin: ThreadId, copy_: ThreadId, *, up_to: int
) -> None:
    """Begin a new thread's log with the same messages under the same seqs."""
    columns = [column for column in messages.c if column.name not in ("tenant", "thread_id")]
    statement = select(
        messages.c.tenant, cast(copy_, messages.c.thread_id.type).label("thread_id"), *columns
    ).where(messages.c.tenant == tenant, messages.c.thread_id == origin, messages.c.seq <= up_to)
    names = ["tenant", "thread_id", *(column.name for column in columns)]
    await connection.execute(insert(messages).from_select(names, statement))


async def page(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    *,
    after: int | None,
    before: int | None,
    descending: bool,
    run_id: RunId | None,
    visibility: Visibility | None,
    limit: int,
    with_rolled_back: bool = False,
) -> Slice[LoggedMessage]:
    """A stretch of the log between two places, both excluded; all visibilities unless one is named."""
    statement = (
        select(messages, rollbacks.c.by_run_id)
        .outerjoin(rollbacks, _is_within)
        .where(messages.c.tenant == tenant, messages.c.thread_id == thread_id)
    )
    if not with_rolled_back:
        statement = statement.where(rollbacks.c.by_run_id.is_(None))
    if after is not None:
        statement = statement.where(messages.c.seq > after)
    if before is not None:
        statement = statement.where(messages.c.seq < before)
    if run_id is not None:
        statement = statement.where(messages.c.produced_by_run == run_id)
    if visibility is not None:
        statement = statement.where(messages.c.visibility == visibility.value)
    return await page_rows(
        connection, statement, _listed, by=("seq",), descending=descending, limit=limit
    )


def _listed(row: Row) -> LoggedMessage:
    return replace(message_of(row), rolled_back_by=row["by_run_id"])


_is_within = (
    (rollbacks.c.tenant == messages.c.tenant)
    & (rollbacks.c.thread_id == messages.c.thread_id)
    & messages.c.seq.between(rollbacks.c.from_seq, rollbacks.c.to_seq)
)
