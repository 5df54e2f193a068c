"""Unread: messages that wait for their runs, listed, changed and taken back.

A run that takes a message holds the thread's lock, and so does whoever changes one or takes it back: the
log has it as it was last, or never.
"""

from dataclasses import replace
from datetime import datetime

from app.control.cancel import wish
from app.control.desk import Desk
from app.control.reading import run_not_found, thread_not_found
from app.domain.errors import Conflict, DigestMismatch, NotFound
from app.domain.ids import InputId, Tenant, ThreadId
from app.domain.inputs import Input, InputStatus
from app.domain.messages import Message
from app.domain.principals import Principal, Scope
from app.domain.runs import RunRecord, RunStatus
from app.domain.threads import Thread
from app.storage import inputs, runs, threads
from app.storage.database import Connection


async def input_page(
    desk: Desk,
    principal: Principal,
    thread_id: ThreadId,
    status: InputStatus,
    *,
    after: tuple[datetime, InputId] | None,
    limit: int,
) -> list[Input]:
    """What was sent to a thread and stands in one of the statuses, oldest first."""
    principal.require(Scope.RUNS_READ)
    async with desk.database.reading() as connection:
        if await threads.get(connection, principal.tenant, thread_id) is None:
            raise thread_not_found(thread_id)
        return await inputs.page(
            connection, principal.tenant, thread_id, status, after=after, limit=limit
        )


async def take_back(
    desk: Desk, principal: Principal, thread_id: ThreadId, input_id: InputId
) -> None:
    """Let no run read a message; one that a run has left unread at its end stays as it is."""
    principal.require(Scope.RUNS_WRITE)
    async with desk.outgoing.transaction() as transaction:
        connection, tenant = transaction.connection, principal.tenant
        thread, found = await _find(connection, tenant, thread_id, input_id)
        if found.status is InputStatus.RETRACTED:
            return
        record = await runs.lock(connection, tenant, found.run_id)
        if record is None:
            raise run_not_found(found.run_id)
        if _is_all_it_has(record):
            await wish(transaction, principal, thread, record, "Its only message was taken back.")
        else:
            await inputs.remove(connection, tenant, record.id, input_id)


async def rewrite(
    desk: Desk,
    principal: Principal,
    thread_id: ThreadId,
    input_id: InputId,
    message: Message,
    *,
    revision: int,
) -> Input:
    """Put another message in the place of one that is as the client has seen it; it keeps its id."""
    principal.require(Scope.RUNS_WRITE)
    async with desk.database.transaction() as connection:
        _, found = await _find(connection, principal.tenant, thread_id, input_id)
        if found.status is InputStatus.RETRACTED:
            raise Conflict(
                "input_retracted", "Its run has ended without reading it; send another one."
            )
        if found.revision != revision:
            raise DigestMismatch(
                "revision_mismatch",
                f"This message was changed meanwhile: it is at revision {found.revision}.",
                revision=found.revision,
            )
        rewritten = replace(
            found, message=replace(message, id=found.message.id), revision=revision + 1
        )
        await inputs.rewrite(connection, principal.tenant, rewritten)
    return rewritten


async def _find(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, input_id: InputId
) -> tuple[Thread, Input]:
    """A message that nobody has taken nor takes before the commit, and its thread, locked."""
    thread = await threads.lock(connection, tenant, thread_id)
    if thread is None:
        raise thread_not_found(thread_id)
    found = await inputs.find(connection, tenant, thread_id, input_id)
    if found is None:
        raise NotFound("input_not_found", f"This thread has no input {input_id}.")
    if found.status is InputStatus.CONSUMED:
        raise Conflict(
            "already_consumed",
            f"Run {found.run_id} has taken this message into the log; send another one instead.",
            run_id=found.run_id,
            seq=found.consumed_seq,
        )
    return thread, found


def _is_all_it_has(record: RunRecord) -> bool:
    """Whether the run would begin with nothing to read."""
    return record.status is RunStatus.CREATED and record.input is None and record.unread_inputs == 1
