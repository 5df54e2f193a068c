"""Replaces the tail of a thread's conversation: a run with all later ones is rolled back for a new run.

The log only grows. Messages before the replaced one that its run was started with are sent again, under new ids. So
whole runs are rolled back, as by `on_active: rollback`.
"""

from collections.abc import Sequence
from typing import assert_never

from msgspec import Struct

from app.clock import new_id
from app.domain.errors import Conflict, NotFound
from app.domain.events.run_events import RolledBack
from app.domain.ids import MessageId, RunId, Tenant, ThreadId
from app.domain.runs.runs import RunRecord
from app.domain.structs import replace
from app.domain.threads.messages import Message, MessageRange
from app.domain.threads.replacements import FromMessage, FromRun, Replacement
from app.domain.threads.threads import Thread
from app.events.transaction import Transaction
from app.storage.postgres.database import Connection
from app.storage.runs import runs
from app.storage.threads import rollbacks, sent_messages, threads


class Tail(Struct, frozen=True):
    """A run and all later ones. Of the messages that it was started with, new ones replace those from
    `replaced_from` on."""

    run: RunRecord
    input: MessageRange
    replaced_from: int

    @property
    def from_seq(self) -> int:
        return self.input.from_seq


async def find_tail(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, replaced: Replacement
) -> Tail:
    """The tail that begins with the run or the message, or a refusal."""
    match replaced:
        case FromRun(run_id):
            run = await _run_of(connection, tenant, thread_id, run_id)
            input_ = _input_of(run)
            return Tail(run, input_, input_.from_seq)
        case FromMessage(message_id):
            return await _tail_from(connection, tenant, thread_id, message_id)
        case _:
            assert_never(replaced)


async def messages_of_replacement(
    connection: Connection, tail: Tail, sent: Sequence[Message]
) -> tuple[Message, ...]:
    """The messages of the new run. Without new ones it reads all that the replaced run was started with."""
    run = tail.run
    log = await sent_messages.in_range(connection, run.tenant, run.thread_id, tail.input)
    kept = [entry.message for entry in log if not sent or entry.seq < tail.replaced_from]
    return (*(replace(message, id=MessageId(new_id())) for message in kept), *sent)


async def roll_back_tail(
    transaction: Transaction, thread: Thread, tail: Tail, new_run_id: RunId
) -> None:
    """Roll back the tail's messages and runs, and restore the thread's state. The caller has locked the
    thread, which has no unfinished run but the new one."""
    connection, tenant = transaction.connection, tail.run.tenant
    from_seq, to_seq = tail.from_seq, thread.next_message_seq - 1
    before = await runs.roll_back_from(connection, tenant, thread.id, from_seq, by=new_run_id)
    if before is not None:
        await threads.restore_state(connection, tenant, thread.id, before)
    await rollbacks.add_tail(
        connection, tenant, thread.id, from_seq, by=new_run_id, at=transaction.now
    )
    transaction.emit(tenant, thread.id, new_run_id, RolledBack(new_run_id, from_seq, to_seq))


async def _tail_from(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, message_id: MessageId
) -> Tail:
    known = (await sent_messages.known(connection, tenant, thread_id, [message_id])).get(message_id)
    if known is None or known.seq is None:
        raise NotFound(
            "message_not_found",
            f"The thread has no message {message_id} in its log. List its messages to see their ids.",
        )
    if known.is_rolled_back:
        raise _not_replaceable(f"The message {message_id} was rolled back already.")
    author = known.message.run_id
    run_id = author or await sent_messages.run_started_with(
        connection, tenant, thread_id, known.seq
    )
    run = None if run_id is None else await runs.get(connection, tenant, run_id)
    if run is None or run.thread_id != thread_id:
        raise _not_replaceable(
            f"No run of this thread was started with the message {message_id} or has written it. Name a run, or "
            "fork the thread up to the message before."
        )
    input_ = _input_of(run)
    return Tail(run, input_, known.seq if author is None else input_.to_seq + 1)


async def _run_of(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, run_id: RunId
) -> RunRecord:
    run = await runs.get(connection, tenant, run_id)
    if run is None or run.thread_id != thread_id:
        raise NotFound("run_not_found", f"The thread has no run {run_id}.")
    return run


def _input_of(run: RunRecord) -> MessageRange:
    """The messages that the run was started with, or the refusal of a run that can't be replaced."""
    range_ = None if run.input is None else run.input.range
    if range_ is None:
        raise Conflict(
            "run_never_began",
            f"Run {run.id} has read no message, so nothing is to be replaced. Start without `replaces`.",
        )
    if run.rolled_back_by is not None:
        raise _not_replaceable(f"Run {run.id} was rolled back by run {run.rolled_back_by} already.")
    return range_


def _not_replaceable(reason: str) -> Conflict:
    return Conflict("not_replaceable", f"{reason} Replace another part of the thread, or nothing.")
