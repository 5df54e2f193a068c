"""Unread: messages that wait for their runs, listed, changed and taken back.

A run that takes a message holds the thread's lock, and so does whoever changes one or takes it back: the
log has it as it was last, or never.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from app.commands.idempotency import IdempotentCommand, begin_once, keep_answer
from app.commands.runs.cancel import request_cancel
from app.context import ServiceContext
from app.domain.errors import Conflict, DigestMismatch, NotFound
from app.domain.events.command_events import InputChanged, InputRetracted
from app.domain.ids import InputId, Tenant, ThreadId
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.slices import Slice
from app.domain.threads.inputs import Input, InputStatus
from app.domain.threads.messages import Message
from app.domain.threads.threads import Thread
from app.queries.records import found_thread, locked_thread, run_not_found
from app.storage.postgres.database import Connection
from app.storage.runs import runs
from app.storage.threads import pending_inputs


@dataclass(frozen=True, slots=True)
class InputVersion:
    """A message as somebody has seen it; without a revision, however it is."""

    input_id: InputId
    revision: int | None


async def list_pending_inputs(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    *,
    after: tuple[int, int],
    limit: int,
) -> Slice[Input]:
    """What runs of a thread haven't read yet, in the order in which they will."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        await found_thread(connection, principal.tenant, thread_id)
        return await pending_inputs.waiting_page(
            connection, principal.tenant, thread_id, after=after, limit=limit
        )


async def list_past_inputs(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    status: InputStatus,
    *,
    after: tuple[datetime, InputId] | None,
    limit: int,
) -> Slice[Input]:
    """What was sent to a thread and waits no more, oldest first."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        await found_thread(connection, principal.tenant, thread_id)
        return await pending_inputs.page(
            connection, principal.tenant, thread_id, status, after=after, limit=limit
        )


async def read_input(
    ctx: ServiceContext, principal: Principal, thread_id: ThreadId, input_id: InputId
) -> Input:
    """One message that was sent to a thread, whatever has become of it."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        await found_thread(connection, principal.tenant, thread_id)
        found = await pending_inputs.find(connection, principal.tenant, thread_id, input_id)
    if found is None:
        raise _not_found(input_id)
    return found


async def retract_input(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    seen: InputVersion,
    *,
    once: IdempotentCommand[None] | None = None,
) -> None:
    """Let no run read a message; one that a run has left unread at its end stays as it is."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.events.transaction() as transaction:
        connection, tenant = transaction.connection, principal.tenant
        await begin_once(connection, principal, once)
        thread = await locked_thread(connection, tenant, thread_id)
        found = await find_pending(connection, tenant, thread, seen)
        if found.status is InputStatus.PENDING:
            record = await runs.lock(connection, tenant, found.run_id)
            if record is None:
                raise run_not_found(found.run_id)
            retracted = InputRetracted(found.id, found.message.id)
            transaction.emit(tenant, thread_id, record.id, retracted)
            if _is_all_it_has(record):
                await request_cancel(
                    transaction,
                    thread,
                    record,
                    by=principal.subject,
                    reason="Its only message was retracted.",
                )
            else:
                await pending_inputs.remove(connection, tenant, record.id, found.id)
        await keep_answer(connection, principal, once, None)


async def change_input(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    seen: InputVersion,
    message: Message,
    *,
    once: IdempotentCommand[Input] | None = None,
) -> Input:
    """Put another message in the place of one that is as the client has seen it; it keeps its id."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.events.transaction() as transaction:
        connection, tenant = transaction.connection, principal.tenant
        await begin_once(connection, principal, once)
        thread = await locked_thread(connection, tenant, thread_id)
        found = await find_pending(connection, tenant, thread, seen)
        require_pending(found)
        rewritten = replace(
            found,
            message=replace(message, id=found.message.id),
            revision=found.revision + 1,
        )
        await pending_inputs.rewrite(connection, tenant, rewritten)
        changed = InputChanged(found.id, found.message.id, rewritten.revision)
        transaction.emit(tenant, thread_id, found.run_id, changed)
        await keep_answer(connection, principal, once, rewritten)
    return rewritten


async def find_pending(
    connection: Connection, tenant: Tenant, thread: Thread, seen: InputVersion
) -> Input:
    """A message that nobody has taken nor takes before the commit, if it is as it was seen; the caller
    has locked its thread."""
    found = await pending_inputs.find(connection, tenant, thread.id, seen.input_id)
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
