"""Messages that clients sent to a thread: found by their ids, with the run that reads them."""

from collections.abc import Collection

from msgspec import Struct

from app.domain.ids import MessageId, RunId, Tenant, ThreadId
from app.domain.threads.messages import LoggedMessage, Message, MessageRange
from app.storage.codec import message_of, queued_message_of
from app.storage.postgres.database import Connection
from app.storage.postgres.named_parameters import NamedSql

_IN_LOG = """
SELECT m.*, EXISTS (SELECT FROM rollbacks b WHERE b.tenant = m.tenant AND b.thread_id = m.thread_id
    AND m.seq BETWEEN b.from_seq AND b.to_seq) AS is_rolled_back
FROM messages m WHERE m.tenant = $1 AND m.thread_id = $2 AND m.message_id = ANY($3::uuid[])
"""
# Only unfinished runs have pending inputs. The conditions are those of two indexes.
_PENDING = """
SELECT i.message, i.run_id FROM runs r
JOIN inputs i ON i.tenant = r.tenant AND i.run_id = r.id AND i.status = 'pending'
WHERE r.tenant = $1 AND r.thread_id = $2 AND (i.message ->> 'id')::uuid = ANY($3::uuid[])
    AND (r.admitted AND r.status <> 'done' OR r.status = 'created' AND NOT r.admitted)
"""
# A retry has the input of the run that it retries, so several runs may have read a message.
_READER = """
SELECT id FROM (
    SELECT r.id, r.events_from FROM runs r
    WHERE r.tenant = $1 AND r.thread_id = $2 AND $3 BETWEEN r.input_from AND r.input_to
    UNION ALL
    SELECT r.id, r.events_from FROM runs r JOIN inputs i ON i.tenant = r.tenant AND i.run_id = r.id
    WHERE r.tenant = $1 AND r.thread_id = $2 AND i.consumed_seq = $3
) AS readers ORDER BY events_from DESC LIMIT 1
"""
_STARTED = """
SELECT id FROM runs
WHERE tenant = $1 AND thread_id = $2 AND $3 BETWEEN input_from AND input_to AND rolled_back_by IS NULL
ORDER BY events_from DESC LIMIT 1
"""
_IN_RANGE = NamedSql("""
SELECT * FROM messages WHERE tenant = :tenant AND thread_id = :thread_id AND seq BETWEEN :from_seq AND :to_seq ORDER BY seq
""")


class KnownMessage(Struct, frozen=True, kw_only=True):
    """A message of a thread: at `seq` of its log, or pending for the run `pending_for`."""

    message: Message
    seq: int | None = None
    pending_for: RunId | None = None
    is_rolled_back: bool = False


async def known(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, ids: Collection[MessageId]
) -> dict[MessageId, KnownMessage]:
    """Those of the messages that the thread has. Under the thread's lock no other gets one of the ids."""
    wanted = (tenant, thread_id, list(ids))
    found: dict[MessageId, KnownMessage] = {}
    for row in await connection.driver.fetch(_PENDING, *wanted):
        message = queued_message_of(row["message"])
        found[message.id] = KnownMessage(message=message, pending_for=RunId(str(row["run_id"])))
    for row in await connection.driver.fetch(_IN_LOG, *wanted):
        entry = message_of(row)
        found[entry.message.id] = KnownMessage(
            message=entry.message, seq=entry.seq, is_rolled_back=row["is_rolled_back"]
        )
    return found


async def reader(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, seq: int
) -> RunId | None:
    """The newest run of the thread that got this message from a client; None if no run of it did."""
    found = await connection.driver.fetchval(_READER, tenant, thread_id, seq)
    return None if found is None else RunId(str(found))


async def run_started_with(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, seq: int
) -> RunId | None:
    """The newest run that was started with this message and wasn't rolled back."""
    found = await connection.driver.fetchval(_STARTED, tenant, thread_id, seq)
    return None if found is None else RunId(str(found))


async def in_range(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, range_: MessageRange
) -> list[LoggedMessage]:
    """The messages of a range of the log."""
    place = {"tenant": tenant, "thread_id": thread_id}
    rows = await connection.driver.fetch(
        *_IN_RANGE(**place, from_seq=range_.from_seq, to_seq=range_.to_seq)
    )
    return [message_of(row) for row in rows]
