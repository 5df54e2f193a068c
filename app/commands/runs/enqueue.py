"""The line in front of a thread: a new run stands behind whatever occupies it, or makes that give way."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from app.clock import new_id
from app.commands.runs.cancel import InterruptedRun
from app.commands.runs.capabilities import require_supported
from app.commands.runs.created_record import created_event, record_as_written
from app.commands.runs.interrupt import interrupt_occupant, roll_back_occupant
from app.commands.runs.new_run import IfThreadMissing, OnActive, StartRequest
from app.commands.runs.steer import reason_not_steerable, steer
from app.context import ServiceContext
from app.domain.agents.capabilities import RootNeeds
from app.domain.errors import Conflict, TooMany
from app.domain.ids import InputId, Tenant
from app.domain.principals import Principal
from app.domain.runs.runs import Created, NewRun, RunRecord, RunStatus
from app.domain.threads.messages import Message
from app.domain.threads.threads import Thread
from app.events.transaction import Transaction
from app.queries.records import thread_not_found
from app.storage.events import event_log
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from app.storage.threads import inputs, threads


@dataclass(frozen=True, slots=True)
class Queued:
    """The run is accepted; a delivery or the end of another run will move it."""

    record: RunRecord
    to_claim: RunKey | None = None
    """The run, when it can go on and no delivery says so."""
    input_ids: tuple[InputId, ...] = ()
    interrupted: InterruptedRun | None = None
    """The run that makes way for it, when its worker should hear of that."""


@dataclass(frozen=True, slots=True)
class JoinedRun:
    """The messages went to the run that occupies the thread: this is it."""

    record: RunRecord
    input_ids: tuple[InputId, ...]


async def enqueue_or_join(
    ctx: ServiceContext,
    principal: Principal,
    transaction: Transaction,
    run: NewRun,
    request: StartRequest,
    *,
    deliver: bool,
) -> Queued | JoinedRun | None:
    """Create the run behind whatever occupies its thread, or join that; None when its id was taken
    meanwhile."""
    connection = transaction.connection
    thread = await threads.lock(connection, run.tenant, run.thread_id)
    if thread is None:
        if request.if_thread_missing is IfThreadMissing.REJECT:
            raise thread_not_found(run.thread_id)
        await threads.create(connection, run.tenant, run.thread_id)
        thread = await threads.lock(connection, run.tenant, run.thread_id)
        if thread is None:
            raise RuntimeError(f"thread {run.thread_id} can't be created")
    if thread.is_occupied and request.on_active is OnActive.REJECT:
        raise Conflict(
            "thread_busy",
            "Another run occupies this thread. Wait for it, cancel it, or start with "
            'on_active "enqueue".',
            active_run_id=thread.open_run_id,
        )
    if thread.open_run_id is not None and request.on_active is OnActive.STEER:
        record = await runs.lock(connection, run.tenant, thread.open_run_id)
        joined = await _join(ctx, transaction, record, run.messages)
        if joined is not None:
            return joined
    line = await enqueue(ctx, transaction, thread, run, deliver=deliver)
    if line is None:
        return None
    match request.on_active:
        case OnActive.INTERRUPT:
            interrupted = await interrupt_occupant(transaction, principal, thread, run.id)
        case OnActive.ROLLBACK:
            interrupted = await roll_back_occupant(transaction, principal, thread, run.id)
        case OnActive.ENQUEUE | OnActive.REJECT | OnActive.STEER:
            return line
        case _:
            assert_never(request.on_active)
    record = await runs.get(connection, run.tenant, run.id)
    return replace(line, record=record or line.record, interrupted=interrupted)


async def join_run_of_unknown_agent(
    ctx: ServiceContext, transaction: Transaction, tenant: Tenant, request: StartRequest
) -> JoinedRun | None:
    """Let the run that occupies the thread have the messages though its agent isn't known here, where no
    run of it can be started; None when it is asked for another agent, or for something else."""
    connection = transaction.connection
    if request.on_active is not OnActive.STEER:
        return None
    thread = await threads.lock(connection, tenant, request.thread_id)
    if thread is None or thread.open_run_id is None:
        return None
    record = await runs.lock(connection, tenant, thread.open_run_id)
    if record is None or request.agent_id not in (None, record.agent_id):
        return None
    return await _join(ctx, transaction, record, request.messages)


async def _join(
    ctx: ServiceContext,
    transaction: Transaction,
    record: RunRecord | None,
    messages: Sequence[Message],
) -> JoinedRun | None:
    """Let the run that is there have the messages; None when it reads nothing more."""
    if record is None or reason_not_steerable(record) is not None:
        return None
    require_supported(ctx, record.agent_id, RootNeeds(continuation=True))
    return JoinedRun(record, await steer(transaction, record, messages))


async def enqueue(
    ctx: ServiceContext, transaction: Transaction, thread: Thread, run: NewRun, *, deliver: bool
) -> Queued | None:
    """Create a run that nobody executes yet on a thread that is locked; None when its id is taken.

    Whoever has room for the run itself needs no delivery; should it fail to claim it, the sweeper will.
    """
    connection = transaction.connection
    occupied = thread.is_occupied
    if thread.queue_length >= ctx.limits.queue_per_thread:
        raise TooMany(
            "queue_full",
            f"{thread.queue_length} runs queue for this thread already; try again when some are done.",
        )
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
    return Queued(record, None if deliver or occupied else key, input_ids)
