"""Start a run: here and now when this process has room and the thread is free, otherwise in line."""

from dataclasses import dataclass

from app import telemetry
from app.commands.idempotency import IdempotentCommand, begin_once, keep_answer
from app.commands.runs.cancel import announce_cancel
from app.commands.runs.created_record import created_event, record_as_written
from app.commands.runs.enqueue import JoinedRun, Queued, enqueue_or_join, join_run_of_unknown_agent
from app.commands.runs.new_run import (
    IfThreadMissing,
    StartRequest,
    agent_of_thread,
    check_names,
    new_run,
)
from app.context import ServiceContext
from app.domain.checkpoints import PendingEvent
from app.domain.errors import Conflict
from app.domain.events.run_events import RunStart
from app.domain.ids import Tenant, WorkerId
from app.domain.json_values import JsonObject
from app.domain.principals import Principal, Scope
from app.domain.runs.identity import run_identity
from app.domain.runs.runs import NewRun, Running, RunRecord, RunStatus
from app.domain.threads.messages import Message
from app.events.sse_encoding import EventBatch
from app.events.transaction import Transaction
from app.storage.events.event_log import entry
from app.storage.postgres.database import Connection
from app.storage.runs import claims, runs


@dataclass(frozen=True, slots=True)
class ClaimedStart:
    """The run was claimed by this process in the same commit, and its `run_start` is said: hand it to
    the worker."""

    record: RunRecord
    messages: tuple[Message, ...]
    first_message_seq: int
    event_seq: int
    thread_state: JsonObject


@dataclass(frozen=True, slots=True)
class AlreadyStarted:
    """The same request was accepted before: this is its run."""

    record: RunRecord


async def start_run(
    ctx: ServiceContext,
    principal: Principal,
    request: StartRequest,
    *,
    worker: WorkerId | None,
    once: IdempotentCommand[RunRecord] | None = None,
) -> ClaimedStart | Queued | JoinedRun | AlreadyStarted:
    """Accept a run. With a `worker` that has a free slot, claim it in the same commit.

    Under a key it is claimed in the next one: the answer to repetitions is committed with the run.
    """
    principal.require(Scope.RUNS_WRITE)
    if once is not None:
        return await _start_once(ctx, principal, request, once, deliver=worker is None)
    tenant = principal.tenant
    agent_id = request.agent_id
    if agent_id is None:
        async with ctx.database.reading() as connection:
            agent_id = await agent_of_thread(connection, tenant, request)
    if agent_id not in ctx.agents.specs:
        if (found := await _without_its_agent(ctx, tenant, request)) is not None:
            return found
    run = new_run(ctx, principal, request, agent_id)
    if request.frontend_tools:
        if (existing := await _look_for_existing(ctx, tenant, request)) is not None:
            return existing
        await check_names(ctx, run, request.frontend_tools)
    if worker is not None and request.if_thread_missing is IfThreadMissing.CREATE:
        if (started := await _start_here(ctx, run, worker)) is not None:
            telemetry.runs_started.labels(run.agent_id).inc()
            return started
    if (existing := await _look_for_existing(ctx, tenant, request)) is not None:
        return existing
    async with ctx.events.transaction() as transaction:
        started_or_taken = await enqueue_or_join(
            ctx, principal, transaction, run, request, deliver=True
        )
    if started_or_taken is None:
        existing = await _look_for_existing(ctx, tenant, request)
        if existing is None:
            raise RuntimeError(f"run {run.id} is taken and isn't there")
        return existing
    await _make_known(ctx, principal, started_or_taken)
    return started_or_taken


async def _without_its_agent(
    ctx: ServiceContext, tenant: Tenant, request: StartRequest
) -> AlreadyStarted | JoinedRun | None:
    """What can be answered though the agent isn't known here: a repetition, and messages for a run that is
    at work elsewhere."""
    if (existing := await _look_for_existing(ctx, tenant, request)) is not None:
        return existing
    async with ctx.events.transaction() as transaction:
        return await join_run_of_unknown_agent(ctx, transaction, tenant, request)


async def _start_once(
    ctx: ServiceContext,
    principal: Principal,
    request: StartRequest,
    once: IdempotentCommand[RunRecord],
    *,
    deliver: bool,
) -> Queued | JoinedRun | AlreadyStarted:
    """One transaction for the key, the run and the answer."""
    tenant = principal.tenant
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        await begin_once(connection, principal, once)
        started: Queued | JoinedRun | AlreadyStarted | None = await _existing(
            connection, tenant, request
        )
        if started is None:
            started = await _accept_in(ctx, principal, transaction, request, deliver=deliver)
        if started is None:
            started = await _existing(connection, tenant, request)
        if started is None:
            raise RuntimeError(f"run {request.run_id} is taken and isn't there")
        await keep_answer(connection, principal, once, started.record)
    await _make_known(ctx, principal, started)
    return started


async def _accept_in(
    ctx: ServiceContext,
    principal: Principal,
    transaction: Transaction,
    request: StartRequest,
    *,
    deliver: bool,
) -> Queued | JoinedRun | None:
    connection, tenant = transaction.connection, principal.tenant
    agent_id = request.agent_id or await agent_of_thread(connection, tenant, request)
    if agent_id not in ctx.agents.specs:
        joined = await join_run_of_unknown_agent(ctx, transaction, tenant, request)
        if joined is not None:
            return joined
    run = new_run(ctx, principal, request, agent_id)
    if request.frontend_tools:
        await check_names(ctx, run, request.frontend_tools)
    return await enqueue_or_join(ctx, principal, transaction, run, request, deliver=deliver)


async def _make_known(
    ctx: ServiceContext, principal: Principal, started: Queued | JoinedRun | AlreadyStarted
) -> None:
    if isinstance(started, Queued):
        await announce_cancel(ctx, principal, started.interrupted)
        telemetry.runs_started.labels(started.record.agent_id).inc()


async def _start_here(ctx: ServiceContext, run: NewRun, worker: WorkerId) -> ClaimedStart | None:
    now = ctx.clock.now()
    asked_for = record_as_written(run, Running(worker), now, events_from=0, first_seq=None)
    started = RunStart(run_identity(asked_for), run.lineage.parent_run_id)
    said = [
        entry(PendingEvent(event, None))
        for event in (created_event(run, RunStatus.RUNNING, position=0), started)
    ]
    admitted = await claims.admit(ctx.database.pool, run, worker, said, now)
    if admitted is None:
        return None
    first = admitted.first_message_seq
    ctx.publisher.publish(
        EventBatch(run.tenant, run.thread_id, run.id, admitted.event_seq, said, now)
    )
    record = record_as_written(run, Running(worker), now, admitted.event_seq, first_seq=first)
    return ClaimedStart(record, run.messages, first, admitted.event_seq, admitted.thread_state)


async def _look_for_existing(
    ctx: ServiceContext, tenant: Tenant, request: StartRequest
) -> AlreadyStarted | None:
    if request.run_id is None:
        return None
    async with ctx.database.reading() as connection:
        return await _existing(connection, tenant, request)


async def _existing(
    connection: Connection, tenant: Tenant, request: StartRequest
) -> AlreadyStarted | None:
    """The run that has this id already, if it was started by the same request."""
    run_id = request.run_id
    if run_id is None:
        return None
    digest = await runs.request_digest(connection, tenant, run_id)
    if digest is None:
        return None
    if digest != request.digest:
        raise Conflict(
            "run_id_conflict",
            f"Run {run_id} was started with another request. Use a new run_id.",
            run_id=run_id,
        )
    record = await runs.get(connection, tenant, run_id)
    return None if record is None else AlreadyStarted(record)
