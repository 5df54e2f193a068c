"""Recognises messages that a thread has already, by the ids that clients chose for them.

A message with the same id and the same content isn't added again. So a client may repeat a request without an
`Idempotency-Key`.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from app.domain.errors import Conflict
from app.domain.ids import MessageId, RunId, Tenant, ThreadId
from app.domain.threads.messages import Message
from app.storage.postgres.database import Connection
from app.storage.threads import sent_messages
from app.storage.threads.sent_messages import KnownMessage


class SentMessages(Struct, frozen=True):
    """The messages that are new to the thread. If there are none, `reader` is the run that has the last one."""

    new: tuple[Message, ...]
    reader: RunId | None = None


async def new_messages(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    sent: Sequence[Message],
    chosen_ids: Collection[MessageId],
) -> SentMessages:
    """The messages without those that the thread has; refused if one has the id of another message.

    The caller has locked the thread.
    """
    if not chosen_ids:
        return SentMessages(tuple(sent))
    known = await sent_messages.known(connection, tenant, thread_id, chosen_ids)
    for message in sent:
        if message.id in known:
            _require_same(message, known[message.id])
    new = tuple(message for message in sent if message.id not in known)
    if new or not sent:
        return SentMessages(new)
    return SentMessages((), await _reader(connection, tenant, thread_id, known[sent[-1].id]))


def _require_same(sent: Message, known: KnownMessage) -> None:
    before = known.message
    if (sent.role, sent.content) != (before.role, before.content):
        raise _id_taken(sent.id, "The thread has a message with the id {id} and another content.")
    if known.is_rolled_back:
        raise _id_taken(sent.id, "The message {id} was rolled back.")


async def _reader(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, known: KnownMessage
) -> RunId:
    run_id = known.pending_for
    if run_id is None and known.seq is not None:
        run_id = await sent_messages.reader(connection, tenant, thread_id, known.seq)
    if run_id is None:
        # It is from the thread of which this one is a fork.
        raise _id_taken(
            known.message.id,
            "The thread has the message {id} already, and none of its runs is known to have read it.",
        )
    return run_id


def _id_taken(message_id: MessageId, reason: str) -> Conflict:
    return Conflict(
        "message_id_conflict",
        f"{reason.format(id=message_id)} Send the message with a new id.",
        message_id=message_id,
    )
