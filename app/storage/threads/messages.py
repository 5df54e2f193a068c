"""A thread's message log: appended under the thread's lock, never changed.

Messages that were rolled back are left out for models, and in lists unless a client asks for them.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import cast, func, insert, select
from sqlalchemy.dialects.postgresql import JSONPATH

from app.clock import yield_to_loop
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.json_values import parsed
from app.domain.runs.runs import RunRecord
from app.domain.slices import PageRequest, Slice
from app.domain.structs import replace
from app.domain.threads.messages import LoggedMessage, Message, MessageFilter, Role
from app.storage.codec import Row, insert_messages, message_of, message_values
from app.storage.page_rows import page_of
from app.storage.postgres.database import Connection, RawPool
from app.storage.postgres.named_parameters import NamedSql
from app.storage.tables import messages, rollbacks

MAX_DECODED_BYTES = 250_000
"""Bytes of messages that are decoded before the event loop gets control; approximate."""

# JSON as text, which is decoded step by step: the connection would decode a long log at once.
_OF_LOG = """seq, message_id, role, visibility, content::text, tool_calls::text, tool_call_id,
    produced_by_run, step_index, edited_arguments::text, created_at"""
_JSON = frozenset({"content", "tool_calls", "edited_arguments"})

HISTORY = f"""
SELECT {_OF_LOG}
FROM messages m WHERE tenant = :tenant AND thread_id = :thread_id AND NOT EXISTS (
    SELECT FROM rollbacks b WHERE b.tenant = m.tenant AND b.thread_id = m.thread_id
        AND m.seq BETWEEN b.from_seq AND b.to_seq)
"""
_HISTORY = NamedSql(f"{HISTORY} ORDER BY seq")


async def history(pool: RawPool, tenant: Tenant, thread_id: ThreadId) -> list[LoggedMessage]:
    """The log without rolled-back messages, for a run that continues it."""
    return await decoded(await pool.fetch(*_HISTORY(tenant=tenant, thread_id=thread_id)))


class _Decoding:
    """A row of the log, whose JSON is decoded when it is read."""

    __slots__ = ("_row",)

    def __init__(self, row: Row) -> None:
        self._row = row

    def __getitem__(self, key: str, /) -> Any:
        value = self._row[key]
        return parsed(value) if key in _JSON and value is not None else value


def bytes_of(row: Row) -> int:
    """The bytes of a row of the log; approximate."""
    return 500 + len(row["content"]) + len(row["tool_calls"] or "")


async def decoded(rows: Sequence[Row]) -> list[LoggedMessage]:
    """The messages of these rows. Yields to the event loop, because a log may be long."""
    log: list[LoggedMessage] = []
    size = 0
    for row in rows:
        log.append(message_of(_Decoding(row)))
        size += bytes_of(row)
        if size > MAX_DECODED_BYTES:
            size = 0
            await yield_to_loop()
    return log


_HISTORY_AT_END = NamedSql(f"""
SELECT {_OF_LOG}
FROM messages m WHERE tenant = :tenant AND thread_id = :thread_id AND seq <= :log_end AND NOT EXISTS (
    SELECT FROM rollbacks b WHERE b.tenant = m.tenant AND b.thread_id = m.thread_id
        AND m.seq BETWEEN b.from_seq AND b.to_seq AND b.to_seq <= :log_end
        -- A run that replaced a tail of the thread is in both columns.
        AND (b.run_id <> :run_id OR b.by_run_id = :run_id)
        AND NOT (b.run_id = b.by_run_id AND EXISTS (SELECT FROM runs later, runs own
            WHERE later.tenant = :tenant AND later.id = b.by_run_id AND later.thread_id = :thread_id
                AND own.tenant = :tenant AND own.id = :run_id AND later.events_from > own.events_from)))
ORDER BY seq
""")


async def history_at_end(
    pool: RawPool, tenant: Tenant, thread_id: ThreadId, run_id: RunId, log_end: int
) -> list[LoggedMessage]:
    """The log at the end of a run: without later messages and rollbacks, with the run's own messages."""
    place = {"tenant": tenant, "thread_id": thread_id, "run_id": run_id, "log_end": log_end}
    return await decoded(await pool.fetch(*_HISTORY_AT_END(**place)))


_HAS_TEXT = '$[*] ? (@.type == "text" && @.text != "")'


async def last_assistant_text(connection: Connection, record: RunRecord) -> LoggedMessage | None:
    """The last assistant message of a run that has text."""
    output_range = record.output.range
    if output_range is None:
        return None
    statement = (
        select(messages)
        .where(
            messages.c.tenant == record.tenant,
            messages.c.thread_id == record.thread_id,
            messages.c.seq.between(output_range.from_seq, output_range.to_seq),
            messages.c.produced_by_run == record.id,
            messages.c.role == Role.ASSISTANT.value,
            func.jsonb_path_exists(messages.c.content, cast(_HAS_TEXT, JSONPATH)),
        )
        .order_by(messages.c.seq.desc())
        .limit(1)
    )
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else message_of(row)


_APPEND = NamedSql(insert_messages(":tenant", ":thread_id::uuid", ":first_seq", "now()"))


async def append(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    next_seq: int,
    new: Sequence[Message],
) -> None:
    """Insert messages from `next_seq` on. The caller holds the thread's lock and advances its counter."""
    if new:
        place = {"tenant": tenant, "thread_id": thread_id, "first_seq": next_seq}
        await connection.driver.execute(*_APPEND(**place, **message_values([new])))


async def since(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, first_seq: int
) -> list[LoggedMessage]:
    """The log from `first_seq` on."""
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
    return [message_of(row) for row in rows]


async def copy(
    connection: Connection, tenant: Tenant, origin: ThreadId, copy_: ThreadId, *, up_to: int
) -> None:
    """Copy messages into a new thread's log, with their seqs."""
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
    wanted: MessageFilter,
    requested: PageRequest,
) -> Slice[LoggedMessage]:
    """Messages by their seq."""
    statement = (
        select(messages, rollbacks.c.by_run_id)
        .outerjoin(rollbacks, _is_within)
        .where(messages.c.tenant == tenant, messages.c.thread_id == thread_id)
    )
    if not wanted.with_rolled_back:
        statement = statement.where(rollbacks.c.by_run_id.is_(None))
    if wanted.from_seq is not None:
        statement = statement.where(messages.c.seq >= wanted.from_seq)
    if wanted.to_seq is not None:
        statement = statement.where(messages.c.seq <= wanted.to_seq)
    if wanted.run_id is not None:
        statement = statement.where(messages.c.produced_by_run == wanted.run_id)
    if wanted.visibility is not None:
        statement = statement.where(messages.c.visibility == wanted.visibility.value)
    return await page_of(connection, statement, _listed, requested, by=("seq",))


def _listed(row: Row) -> LoggedMessage:
    return replace(message_of(row), rolled_back_by=row["by_run_id"])


_is_within = (
    (rollbacks.c.tenant == messages.c.tenant)
    & (rollbacks.c.thread_id == messages.c.thread_id)
    & messages.c.seq.between(rollbacks.c.from_seq, rollbacks.c.to_seq)
)
