"""A thread's queue: a new run waits behind the open run, joins it, or interrupts it."""

from collections.abc import Sequence
from typing import assert_never

from msgspec import Struct

from app.clock import new_id
from app.commands.files.references import refer_to_files
from app.commands.runs.cancel import InterruptedRun
from app.commands.runs.capabilities import require_supported
from app.commands.runs.created_record import created_event, record_as_written
from app.commands.runs.interrupt import interrupt_occupant, roll_back_occupant
from app.commands.runs.known_messages import new_messages
from app.commands.runs.new_run import (
    IfThreadMissing,
    OnActive,
    StartRequest,
    agent_of_thread,
    check_names,
    new_run,
    with_messages,
)
from app.commands.runs.replace_tail import find_tail, messages_of_replacement, roll_back_tail
from app.commands.runs.require_prices import require_prices
from app.commands.runs.steer import reason_not_steerable, steer
from app.context import ServiceContext
from app.domain.agents.capabilities import RootNeeds
from app.domain.errors import Conflict, TooMany
from app.domain.ids import InputId, RunId, Tenant
from app.domain.principals import Principal
from app.domain.runs.runs import Created, NewRun, RunRecord, RunStatus
from app.domain.structs import replace
from app.domain.threads.messages import Message
from app.domain.threads.replacements import Replacement
from app.domain.threads.threads import Thread
from app.events.transaction import Transaction
from app.queries.records import found_run, thread_not_found
from app.storage.events import event_log
from app.storage.postgres.database import Connection
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from app.storage.threads import inputs, threads


class AcceptedRun(Struct, frozen=True):
    """The run that reads a request's messages."""

    record: RunRecord
    is_new: bool = True
    """False: the messages joined the thread's open run, or an earlier request started the run."""
    to_claim: RunKey | None = None
    """The run, if it can execute and no delivery was enqueued."""
    input_ids: tuple[InputId, ...] = ()
    interrupted: InterruptedRun | None = None
    """The run that is cancelled for this one and still executes."""


async def enqueue_or_join(
    ctx: ServiceContext,
    principal: Principal,
    transaction: Transaction,
    request: StartRequest,
    *,
    deliver: bool,
) -> AcceptedRun | None:
    """Create a run on the thread behind its open run, or send the messages to the open run.

    None if the new run's id was taken meanwhile.
    """
    connection, tenant = transaction.connection, principal.tenant
    agent_id = request.agent_id or await agent_of_thread(connection, tenant, request)
    if agent_id not in ctx.agents.specs:
        joined = await _join_run_of_unknown_agent(ctx, transaction, tenant, request)
        if joined is not None:
            return joined
    run = new_run(ctx, principal, request, agent_id)
    await check_names(ctx, run, request)
    await require_prices(ctx, run)
    thread = await _lock_or_create(connection, run, request.if_thread_missing)
    sent = await new_messages(connection, tenant, thread.id, request.messages, request.chosen_ids)
    if sent.reader is not None:
        return await _repeated(connection, tenant, request, sent.reader)
    run = with_messages(run, sent.new) if len(sent.new) < len(run.messages) else run
    _require_unoccupied(thread, request)
    if request.replaces is not None:
        if len(run.messages) < len(request.messages):
            raise Conflict(
                "message_id_conflict",
                "The thread has some of the messages already. Send only new ones with `replaces`.",
            )
        return await _replace_tail(ctx, transaction, thread, run, request.replaces, deliver=deliver)
    if thread.open_run_id is not None and request.on_active is OnActive.STEER:
        record = await runs.lock(connection, run.tenant, thread.open_run_id)
        joined = await _join(ctx, transaction, record, run.messages)
        if joined is not None:
            return joined
    accepted = await enqueue(ctx, transaction, thread, run, deliver=deliver)
    if accepted is None:
        return None
    return await _interrupting(transaction, principal, thread, accepted, request.on_active)


async def _interrupting(
    transaction: Transaction,
    principal: Principal,
    thread: Thread,
    accepted: AcceptedRun,
    on_active: OnActive,
) -> AcceptedRun:
    """The new run, for which the thread's open run is cancelled if the request says so."""
    run = accepted.record
    match on_active:
        case OnActive.INTERRUPT:
            interrupted = await interrupt_occupant(transaction, principal, thread, run.id)
        case OnActive.ROLLBACK:
            interrupted = await roll_back_occupant(transaction, principal, thread, run.id)
        case OnActive.ENQUEUE | OnActive.REJECT | OnActive.STEER:
            return accepted
        case _:
            assert_never(on_active)
    record = await runs.get(transaction.connection, run.tenant, run.id)
    return replace(accepted, record=record or accepted.record, interrupted=interrupted)


def _require_unoccupied(thread: Thread, request: StartRequest) -> None:
    if not thread.is_occupied:
        return
    if request.replaces is not None:
        raise Conflict(
            "thread_busy",
            "Another run occupies this thread, so nothing of it can be replaced. Wait for the run or cancel it.",
            active_run_id=thread.open_run_id,
        )
    if request.on_active is OnActive.REJECT:
        raise Conflict(
            "thread_busy",
            "Another run occupies this thread. Wait for it, cancel it, or start with "
            'on_active "enqueue".',
            active_run_id=thread.open_run_id,
        )


async def _lock_or_create(
    connection: Connection, run: NewRun, if_missing: IfThreadMissing
) -> Thread:
    thread = await threads.lock(connection, run.tenant, run.thread_id)
    if thread is not None:
        if thread.key is None and run.thread_key is not None:
            await threads.change(connection, run.tenant, run.thread_id, {"key": run.thread_key})
        return thread
    if if_missing is IfThreadMissing.REJECT:
        raise thread_not_found(run.thread_id, run.thread_key)
    await threads.create(connection, run.tenant, run.thread_id, key=run.thread_key)
    thread = await threads.lock(connection, run.tenant, run.thread_id)
    if thread is None:
        raise RuntimeError(f"thread {run.thread_id} can't be created")
    return thread


async def _join_run_of_unknown_agent(
    ctx: ServiceContext, transaction: Transaction, tenant: Tenant, request: StartRequest
) -> AcceptedRun | None:
    """Send the messages to the open run although this process doesn't know its agent.

    Such a process can't start a run of that agent. None unless the request steers and names that agent or
    none.
    """
    connection = transaction.connection
    if request.on_active is not OnActive.STEER:
        return None
    thread = await threads.lock(connection, tenant, request.thread_id)
    if thread is None or thread.open_run_id is None:
        return None
    record = await runs.lock(connection, tenant, thread.open_run_id)
    if record is None or request.agent_id not in (None, record.agent_id):
        return None
    sent = await new_messages(connection, tenant, thread.id, request.messages, request.chosen_ids)
    if sent.reader is not None:
        return await _repeated(connection, tenant, request, sent.reader)
    return await _join(ctx, transaction, record, sent.new)


async def _repeated(
    connection: Connection, tenant: Tenant, request: StartRequest, reader: RunId
) -> AcceptedRun:
    """The run that has the request's messages already."""
    if request.run_id not in (None, reader):
        raise Conflict(
            "message_id_conflict",
            f"Run {reader} has these messages already. Repeat the request with its id, or send new messages.",
            run_id=reader,
        )
    return AcceptedRun(await found_run(connection, tenant, reader), is_new=False)


async def _replace_tail(
    ctx: ServiceContext,
    transaction: Transaction,
    thread: Thread,
    run: NewRun,
    replaced: Replacement,
    *,
    deliver: bool,
) -> AcceptedRun | None:
    """Create a run in the place of the thread's tail; None if the run's id is taken."""
    connection = transaction.connection
    tail = await find_tail(connection, run.tenant, thread.id, replaced)
    run = with_messages(run, await messages_of_replacement(connection, tail, run.messages))
    accepted = await enqueue(ctx, transaction, thread, run, deliver=deliver)
    if accepted is not None:
        await roll_back_tail(transaction, thread, tail, run.id)
    return accepted


async def _join(
    ctx: ServiceContext,
    transaction: Transaction,
    record: RunRecord | None,
    messages: Sequence[Message],
) -> AcceptedRun | None:
    """Send the messages to the open run; None if it reads no more."""
    if record is None or reason_not_steerable(record) is not None:
        return None
    require_supported(ctx, record.agent_id, RootNeeds(continuation=True))
    input_ids = await steer(transaction, record, messages)
    return AcceptedRun(record, is_new=False, input_ids=input_ids)


async def enqueue(
    ctx: ServiceContext, transaction: Transaction, thread: Thread, run: NewRun, *, deliver: bool
) -> AcceptedRun | None:
    """Create a run on a thread that the caller has locked; None if the run's id is taken.

    A caller with a free slot passes `deliver=False` and claims the run. If that fails, the sweeper enqueues
    it.
    """
    connection = transaction.connection
    run = replace(run, thread_key=thread.key or run.thread_key)
    occupied = thread.is_occupied
    if thread.queue_length >= ctx.limits.queue_per_thread:
        raise TooMany(
            "queue_full",
            f"{thread.queue_length} runs queue for this thread already. Retry when some are done.",
        )
    await refer_to_files(connection, run.tenant, run.thread_id, run.messages)
    events_from = await event_log.next_seq(connection, run.tenant, run.thread_id)
    position = thread.queue_length + 1 if occupied else 0
    if not await runs.insert_created(
        connection, run, admitted=not occupied, events_from=events_from, at=transaction.now
    ):
        return None
    waiting = [(InputId(new_id()), message) for message in run.messages]
    if waiting:
        await inputs.queue(connection, run.tenant, run.thread_id, run.id, waiting)
    changed = {"queue_length": thread.queue_length + 1} if occupied else {"open_run_id": run.id}
    await threads.change(
        connection, run.tenant, run.thread_id, {**changed, "latest_run_id": run.id}
    )
    key = RunKey(run.tenant, run.thread_id, run.id, 0)
    if deliver and not occupied:
        await deliveries.enqueue(connection, key)
    created = created_event(run, RunStatus.CREATED, position=position)
    transaction.emit(run.tenant, run.thread_id, run.id, created)
    record = record_as_written(
        run, Created(not occupied), transaction.now, events_from, first_seq=None
    )
    input_ids = tuple(input_id for input_id, _ in waiting)
    to_claim = None if deliver or occupied else key
    return AcceptedRun(record, to_claim=to_claim, input_ids=input_ids)
