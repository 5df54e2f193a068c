"""Inputs: messages for a run that is there, or for a new one in line behind it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias, assert_never

from app import telemetry
from app.clock import new_id
from app.commands.idempotency import IdempotentCommand, begin_once, keep_answer
from app.commands.inputs.resume_waiting_run import resume_waiting_run
from app.commands.runs.cancel import InterruptedRun, announce_cancel
from app.commands.runs.capabilities import require_supported
from app.commands.runs.enqueue import JoinedRun, enqueue_or_join, join_run_of_unknown_agent
from app.commands.runs.new_run import (
    IfThreadMissing,
    OnActive,
    StartRequest,
    agent_of_thread,
    new_run,
)
from app.commands.runs.steer import reason_not_steerable, steer
from app.context import ServiceContext
from app.domain.agents.capabilities import RootNeeds
from app.domain.errors import Conflict
from app.domain.ids import AgentId, InputId, RunId, ThreadId
from app.domain.json_values import JsonObject, digest
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord
from app.domain.threads.messages import Message
from app.events.transaction import Transaction
from app.queries.records import found_thread, locked_thread, run_not_found
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from app.storage.threads import threads


class InputMode(StrEnum):
    """Who is to read the messages: a new run in line, the one that is there, or one in its place."""

    QUEUE = "queue"
    STEER = "steer"
    INTERRUPT_THEN_QUEUE = "interrupt_then_queue"
    RESUME_OPEN_RUN = "resume_open_run"
    """The run that is there, which waits, and goes on with them."""


_ON_ACTIVE = {
    InputMode.QUEUE: OnActive.ENQUEUE,
    InputMode.STEER: OnActive.STEER,
    InputMode.INTERRUPT_THEN_QUEUE: OnActive.INTERRUPT,
}


@dataclass(frozen=True, slots=True)
class ToRun:
    run_id: RunId


@dataclass(frozen=True, slots=True)
class ToThread:
    thread_id: ThreadId


Target: TypeAlias = ToRun | ToThread


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequest:
    """Messages as a client sent them; without an agent, a new run is of the thread's last one."""

    messages: tuple[Message, ...]
    mode: InputMode
    agent_id: AgentId | None = None
    limits: JsonObject = field(default_factory=dict)
    """How much a run that is started may use."""
    traceparent: str | None = None
    transport_request_id: str | None = None


@dataclass(frozen=True, slots=True)
class AcceptedInput:
    """The run that reads the messages, and what each of them is called until it has."""

    run: RunRecord
    input_ids: Sequence[InputId]
    to_claim: RunKey | None = None
    """The run, when it can go on and no delivery says so."""
    interrupted: InterruptedRun | None = None


async def send_input(
    ctx: ServiceContext,
    principal: Principal,
    to: Target,
    request: InputRequest,
    *,
    deliver: bool,
    once: IdempotentCommand[AcceptedInput] | None = None,
) -> AcceptedInput:
    """Put messages before a run that reads them; once this is answered, none of them is overlooked."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        await begin_once(connection, principal, once)
        match to:
            case ToRun(run_id):
                known = await runs.get(connection, principal.tenant, run_id)
                if known is None:
                    raise run_not_found(run_id)
                thread_id = known.thread_id
            case ToThread(thread_id):
                known = None
            case _:
                assert_never(to)
        if request.mode is InputMode.RESUME_OPEN_RUN:
            accepted = await _resume(
                ctx, principal, transaction, thread_id, known, request.messages, deliver=deliver
            )
        elif known is not None and request.mode is InputMode.STEER:
            require_supported(ctx, known.agent_id, RootNeeds(continuation=True))
            accepted = await _steer(transaction, known, request.messages)
        else:
            accepted = await _start(
                ctx, principal, transaction, thread_id, request, deliver=deliver
            )
        await keep_answer(connection, principal, once, accepted)
    await announce_cancel(ctx, principal, accepted.interrupted)
    return accepted


async def _steer(
    transaction: Transaction, known: RunRecord, messages: Sequence[Message]
) -> AcceptedInput:
    await threads.lock(transaction.connection, known.tenant, known.thread_id)
    record = await runs.lock(transaction.connection, known.tenant, known.id)
    if record is None:
        raise run_not_found(known.id)
    if (why_not := reason_not_steerable(record)) is not None:
        raise why_not
    return AcceptedInput(record, await steer(transaction, record, messages))


async def _resume(
    ctx: ServiceContext,
    principal: Principal,
    transaction: Transaction,
    thread_id: ThreadId,
    known: RunRecord | None,
    messages: Sequence[Message],
    *,
    deliver: bool,
) -> AcceptedInput:
    """By its id, or as whatever occupies the thread."""
    connection, tenant = transaction.connection, principal.tenant
    thread = await locked_thread(connection, tenant, thread_id)
    run_id = thread.open_run_id if known is None else known.id
    if run_id is None:
        raise Conflict(
            "run_not_waiting",
            'Nothing goes on on this thread. Send the messages with mode "queue".',
        )
    record = await runs.lock(connection, tenant, run_id)
    if record is None:
        raise run_not_found(run_id)
    require_supported(ctx, record.agent_id, RootNeeds(continuation=True))
    input_ids, to_claim = await resume_waiting_run(
        ctx, principal, transaction, record, messages, deliver=deliver
    )
    return AcceptedInput(record, input_ids, to_claim)


async def _start(
    ctx: ServiceContext,
    principal: Principal,
    transaction: Transaction,
    thread_id: ThreadId,
    request: InputRequest,
    *,
    deliver: bool,
) -> AcceptedInput:
    """As a start with the same messages would; only that the thread must be there."""
    connection, tenant = transaction.connection, principal.tenant
    await found_thread(connection, tenant, thread_id)
    run_id = RunId(new_id())
    start = StartRequest(
        agent_id=request.agent_id,
        thread_id=thread_id,
        run_id=run_id,
        messages=request.messages,
        on_active=_ON_ACTIVE[request.mode],
        if_thread_missing=IfThreadMissing.REJECT,
        metadata={},
        digest=digest(["input", run_id]),
        traceparent=request.traceparent,
        transport_request_id=request.transport_request_id,
        limits=request.limits,
    )
    agent_id = start.agent_id or await agent_of_thread(connection, tenant, start)
    if agent_id not in ctx.agents.specs:
        joined = await join_run_of_unknown_agent(ctx, transaction, tenant, start)
        if joined is not None:
            return AcceptedInput(joined.record, joined.input_ids)
    run = new_run(ctx, principal, start, agent_id)
    started = await enqueue_or_join(ctx, principal, transaction, run, start, deliver=deliver)
    if started is None:
        raise RuntimeError(f"the new id {run_id} is taken")
    if isinstance(started, JoinedRun):
        return AcceptedInput(started.record, started.input_ids)
    telemetry.runs_started.labels(agent_id).inc()
    return AcceptedInput(started.record, started.input_ids, started.to_claim, started.interrupted)
