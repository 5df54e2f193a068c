"""Unread: messages that wait for their runs, listed, changed and taken back.

A run that takes a message holds the thread's lock, and so does whoever changes one or takes it back: the
log has it as it was last, or never.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from app.control.cancel import wish
from app.control.desk import Desk
from app.control.once import Once, begin, settle
from app.control.reading import found_thread, locked_thread, run_not_found
from app.domain.control_events import InputChanged, InputRetracted
from app.domain.errors import Conflict, DigestMismatch, NotFound
from app.domain.ids import InputId, Tenant, ThreadId
from app.domain.inputs import Input, InputStatus
from app.domain.messages import Message
from app.domain.principals import Principal, Scope
from app.domain.runs import RunRecord, RunStatus
from app.domain.slices import Slice
from app.domain.threads import Thread
from app.storage import runs, unread
from app.storage.database import Connection


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as somebody has seen it; without a revision, however it is."""

    input_id: InputId
    revision: int | None


async def waiting_page(
    desk: Desk, principal: Principal, thread_id: ThreadId, *, after: tuple[int, int], limit: int
) -> Slice[Input]:
    """What runs of a thread haven't read yet, in the order in which they will."""
    principal.require(Scope.RUNS_READ)
    async with desk.database.reading() as connection:
        await found_thread(connection, principal.tenant, thread_id)
        return await unread.waiting_page(
            connection, principal.tenant, thread_id, after=after, limit=limit
        )


async def past_page(
    desk: Desk,
    principal: Principal,
    thread_id: ThreadId,
    status: InputStatus,
    *,
    after: tuple[datetime, InputId] | None,
    limit: int,
) -> Slice[Input]:
    """What was sent to a thread and waits no more, oldest first."""
    principal.require(Scope.RUNS_READ)
    async with desk.database.reading() as connection:
        await found_thread(connection, principal.tenant, thread_id)
        return await unread.page(
            connection, principal.tenant, thread_id, status, after=after, limit=limit
        )


async def read(desk: Desk, principal: Principal, thread_id: ThreadId, input_id: InputId) -> Input:
    """One message that was sent to a thread, whatever has become of it."""
    principal.require(Scope.RUNS_READ)
    async with desk.database.reading() as connection:
        await found_thread(connection, principal.tenant, thread_id)
        found = await unread.find(connection, principal.tenant, thread_id, input_id)
    if found is None:
        raise _not_found(input_id)
    return found


async def take_back(
    desk: Desk,
    principal: Principal,
    thread_id: ThreadId,
    seen: Seen,
    *,
    once: Once[None] | None = None,
) -> None:
    """Let no run read a message; one that a run has left unread at its end stays as it is."""
    principal.require(Scope.RUNS_WRITE)
    async with desk.outgoing.transaction() as transaction:
        connection, tenant = transaction.connection, principal.tenant
        await begin(connection, principal, once)
        thread = await locked_thread(connection, tenant, thread_id)
        found = await find_untaken(connection, tenant, thread, seen)
        if found.status is InputStatus.PENDING:
            record = await runs.lock(connection, tenant, found.run_id)
            if record is None:
                raise run_not_found(found.run_id)
            retracted = InputRetracted(found.id, found.message.id)
            transaction.say(tenant, thread_id, record.id, retracted)
            if _is_all_it_has(record):
                await wish(
                    transaction, principal, thread, record, "Its only message was taken back."
                )
            else:
                await unread.remove(connection, tenant, record.id, found.id)
        await settle(connection, principal, once, None)


async def rewrite(
    desk: Desk,
    principal: Principal,
    thread_id: ThreadId,
    seen: Seen,
    message: Message,
    *,
    once: Once[Input] | None = None,
) -> Input:
    """Put another message in the place of one that is as the client has seen it; it keeps its id."""
    principal.require(Scope.RUNS_WRITE)
    async with desk.outgoing.transaction() as transaction:
        connection, tenant = transaction.connection, principal.tenant
        await begin(connection, principal, once)
        thread = await locked_thread(connection, tenant, thread_id)
        found = await find_untaken(connection, tenant, thread, seen)
        require_pending(found)
        rewritten = replace(
            found,
            message=replace(message, id=found.message.id),
            revision=found.revision + 1,
        )
        await unread.rewrite(connection, tenant, rewritten)
        changed = InputChanged(found.id, found.message.id, rewritten.revision)
        transaction.say(tenant, thread_id, found.run_id, changed)
        await settle(connection, principal, once, rewritten)
    return rewritten


async def find_untaken(connection: Connection, tenant: Tenant, thread: Thread, seen: Seen) -> Input:
    """A message that nobody has taken nor takes before the commit, if it is as it was seen; the caller
    has locked its thread."""
    found = await unread.find(connection, tenant, thread.id, seen.input_id)
    if found is None:
        raise _not_found(seen.input_id)
    if found.status is InputStatus.CONSUMED:
        raise Conflict(
            "already_consumed",
            f"Run {found.run_id} has taken this message into the log; send another one instead.",
            input_id=found.id,
            run_id=found.run_id,
            message_seq=found.consumed_seq,
        )
    if seen.revision is not None and seen.revision != found.revision:
        raise DigestMismatch(
            "revision_mismatch",
            f"Input {found.id} was changed meanwhile: it is at revision {found.revision}. Read what "
            "waits again.",
            input_id=found.id,
            revision=found.revision,
        )
    return found


def require_pending(found: Input) -> None:
    if found.status is InputStatus.RETRACTED:
        raise Conflict(
            "input_retracted",
            "Its run has ended without reading it; send another one.",
            input_id=found.id,
        )


def _not_found(input_id: InputId) -> NotFound:
    return NotFound("input_not_found", f"This thread has no input {input_id}.")


def _is_all_it_has(record: RunRecord) -> bool:
    """Whether the run would begin with nothing to read."""
    return record.status is RunStatus.CREATED and record.input is None and record.unread_inputs == 1
