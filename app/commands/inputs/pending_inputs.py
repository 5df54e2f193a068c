"""Pending inputs: list, change and retract messages that no run has read yet.

A run that reads a message holds the thread's lock, and so does a command that changes or retracts one: the
message log gets the last version, or nothing.
"""

from msgspec import Struct

from app.commands.files.inline_media import with_stored_media
from app.commands.files.references import refer_to_files
from app.commands.idempotency import IdempotentCommand, begin_idempotent, store_response
from app.commands.runs.cancel import request_cancel
from app.context import ServiceContext
from app.domain.errors import Conflict, DigestMismatch, NotFound
from app.domain.events.input_events import InputChanged, InputRetracted
from app.domain.ids import InputId, Tenant, ThreadId
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.slices import PageRequest, Slice
from app.domain.structs import replace
from app.domain.threads.inputs import Input, InputStatus
from app.domain.threads.messages import Message
from app.domain.threads.threads import Thread
from app.queries.records import found_thread, locked_run, locked_thread
from app.storage.postgres.database import Connection
from app.storage.threads import pending_inputs


class InputVersion(Struct, frozen=True):
    """An input with the revision that the client expects, or None for any."""

    input_id: InputId
    revision: int | None


async def list_pending_inputs(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    requested: PageRequest,
) -> Slice[Input]:
    """Messages that a thread's runs haven't read yet, in reading order."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        await found_thread(connection, principal.tenant, thread_id)
        return await pending_inputs.waiting_page(connection, principal.tenant, thread_id, requested)


async def list_past_inputs(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    status: InputStatus,
    requested: PageRequest,
) -> Slice[Input]:
    """Messages that were read or retracted."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        await found_thread(connection, principal.tenant, thread_id)
        return await pending_inputs.page(connection, principal.tenant, thread_id, status, requested)


async def read_input(
    ctx: ServiceContext, principal: Principal, thread_id: ThreadId, input_id: InputId
) -> Input:
    """One message that was sent to a thread, in any status."""
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
    """Retract a pending message. One that is retracted already doesn't change."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.events.transaction() as transaction:
        connection, tenant = transaction.connection, principal.tenant
        await begin_idempotent(connection, principal, once)
        thread = await locked_thread(connection, tenant, thread_id)
        found = await find_pending(connection, tenant, thread, seen)
        if found.status is InputStatus.PENDING:
            record = await locked_run(connection, tenant, found.run_id)
            retracted = InputRetracted(found.id, found.message.id)
            transaction.emit(tenant, thread_id, record.id, retracted)
            await pending_inputs.retract(
                connection, tenant, record.id, found.id, by=principal.subject
            )
            if _is_only_input(record):
                await request_cancel(
                    transaction,
                    thread,
                    record,
                    by=principal.subject,
                    reason="Its only message was retracted.",
                )
        await store_response(connection, principal, once, None)


async def change_input(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    seen: InputVersion,
    message: Message,
    *,
    once: IdempotentCommand[Input] | None = None,
) -> Input:
    """Replace a pending message that has the expected revision; it keeps its id."""
    principal.require(Scope.RUNS_WRITE)
    async with with_stored_media(ctx, principal, (message,)) as (stored,):
        return await _change(ctx, principal, thread_id, seen, stored, once)


async def _change(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    seen: InputVersion,
    message: Message,
    once: IdempotentCommand[Input] | None,
) -> Input:
    async with ctx.events.transaction() as transaction:
        connection, tenant = transaction.connection, principal.tenant
        await begin_idempotent(connection, principal, once)
        thread = await locked_thread(connection, tenant, thread_id)
        found = await find_pending(connection, tenant, thread, seen)
        require_pending(found)
        await refer_to_files(connection, tenant, thread_id, [message])
        rewritten = replace(
            found,
            message=replace(message, id=found.message.id),
            revision=found.revision + 1,
        )
        await pending_inputs.rewrite(connection, tenant, rewritten)
        changed = InputChanged(found.id, found.message.id, rewritten.revision)
        transaction.emit(tenant, thread_id, found.run_id, changed)
        await store_response(connection, principal, once, rewritten)
    return rewritten


async def find_pending(
    connection: Connection, tenant: Tenant, thread: Thread, seen: InputVersion
) -> Input:
    """An input that no run has read, in the expected version. The caller has locked the thread, so no
    run reads it before the commit."""
    found = await pending_inputs.find(connection, tenant, thread.id, seen.input_id)
    if found is None:
        raise _not_found(seen.input_id)
    if found.status is InputStatus.CONSUMED:
        raise Conflict(
            "already_consumed",
            f"Run {found.run_id} has read this message already. Send another message instead.",
            input_id=found.id,
            run_id=found.run_id,
            message_seq=found.consumed_seq,
        )
    if seen.revision is not None and seen.revision != found.revision:
        raise DigestMismatch(
            "revision_mismatch",
            f"Input {found.id} was changed meanwhile: it has revision {found.revision}. Read the pending "
            "inputs again.",
            input_id=found.id,
            revision=found.revision,
        )
    return found


def require_pending(found: Input) -> None:
    if found.status is InputStatus.RETRACTED:
        raise Conflict(
            "input_retracted",
            "The input was retracted, or its run ended without reading it. Send another message.",
            input_id=found.id,
        )


def _not_found(input_id: InputId) -> NotFound:
    return NotFound("input_not_found", f"This thread has no input {input_id}.")


def _is_only_input(record: RunRecord) -> bool:
    """Whether the run would have no message left to begin with."""
    return record.status is RunStatus.CREATED and record.input is None and record.unread_inputs == 1
