"""Send messages to a thread: its open run reads them, or a new run that is queued behind it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias, assert_never

from msgspec import Struct

from app import telemetry
from app.clock import new_id
from app.commands.files.inline_media import with_stored_media
from app.commands.idempotency import IdempotentCommand, begin_idempotent, store_response
from app.commands.inputs.resume_waiting_run import resume_waiting_run
from app.commands.runs.cancel import InterruptedRun, announce_cancel
from app.commands.runs.capabilities import require_supported
from app.commands.runs.enqueue import enqueue_or_join
from app.commands.runs.known_messages import new_messages
from app.commands.runs.new_run import (
    IfThreadMissing,
    OnActive,
    StartRequest,
)
from app.commands.runs.steer import reason_not_steerable, steer
from app.context import ServiceContext
from app.domain.agents.capabilities import RootNeeds
from app.domain.errors import Conflict
from app.domain.ids import AgentId, InputId, MessageId, RunId, Tenant, ThreadId
from app.domain.json_values import JsonObject, digest
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord
from app.domain.structs import replace
from app.domain.threads.messages import Message
from app.events.transaction import Transaction
from app.queries.records import found_run, found_thread, locked_run, locked_thread
from app.storage.runs.runs import RunKey
from app.storage.threads import threads


class InputMode(StrEnum):
    """Which run reads the messages: a new queued run, the open run, or a new run in its place."""

    QUEUE = "queue"
    STEER = "steer"
    INTERRUPT_THEN_QUEUE = "interrupt_then_queue"
    RESUME_OPEN_RUN = "resume_open_run"
    """The open run, which waits and is resumed by them."""


_ON_ACTIVE = {
    InputMode.QUEUE: OnActive.ENQUEUE,
    InputMode.STEER: OnActive.STEER,
    InputMode.INTERRUPT_THEN_QUEUE: OnActive.INTERRUPT,
}


class ToRun(Struct, frozen=True):
    run_id: RunId


class ToThread(Struct, frozen=True):
    thread_id: ThreadId


Target: TypeAlias = ToRun | ToThread


class InputRequest(Struct, frozen=True, kw_only=True):
    """Messages as a client sent them. Without `agent_id`, a new run uses the thread's last agent."""

    messages: tuple[Message, ...]
    mode: InputMode
    chosen_ids: frozenset[MessageId] = frozenset()
    """The ids of messages that the client has chosen."""
    agent_id: AgentId | None = None
    limits: JsonObject = {}
    """The limits of a run that is started for them."""
    traceparent: str | None = None
    transport_request_id: str | None = None


class AcceptedInput(Struct, frozen=True):
    """The run that reads the messages, and the id of each until it is read."""

    run: RunRecord
    input_ids: Sequence[InputId]
    to_claim: RunKey | None = None
    """The run, if it can execute and no delivery was enqueued."""
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
    """Queue messages for the run that reads them, durably once this returns."""
    principal.require(Scope.RUNS_WRITE)
    async with with_stored_media(ctx, principal, request.messages) as messages:
        stored = replace(request, messages=messages)
        return await _send(ctx, principal, to, stored, deliver=deliver, once=once)


async def _send(
    ctx: ServiceContext,
    principal: Principal,
    to: Target,
    request: InputRequest,
    *,
    deliver: bool,
    once: IdempotentCommand[AcceptedInput] | None,
) -> AcceptedInput:
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        await begin_idempotent(connection, principal, once)
        known: RunRecord | None = None
        match to:
            case ToRun(run_id):
                known = await found_run(connection, principal.tenant, run_id)
                thread_id = known.thread_id
            case ToThread(thread_id):
                pass
            case _:
                assert_never(to)
        if request.mode is InputMode.RESUME_OPEN_RUN:
            accepted = await _resume(
                ctx, principal, transaction, thread_id, known, request, deliver=deliver
            )
        elif known is not None and request.mode is InputMode.STEER:
            require_supported(ctx, known.agent_id, RootNeeds(continuation=True))
            accepted = await _steer(transaction, known, request)
        else:
            accepted = await _start(
                ctx, principal, transaction, thread_id, request, deliver=deliver
            )
        await store_response(connection, principal, once, accepted)
    await announce_cancel(ctx, accepted.interrupted)
    return accepted


async def _steer(
    transaction: Transaction, known: RunRecord, request: InputRequest
) -> AcceptedInput:
    await threads.lock(transaction.connection, known.tenant, known.thread_id)
    sent = await _new_messages(transaction, known.tenant, known.thread_id, request)
    if isinstance(sent, AcceptedInput):
        return sent
    record = await locked_run(transaction.connection, known.tenant, known.id)
    if (why_not := reason_not_steerable(record)) is not None:
        raise why_not
    return AcceptedInput(record, await steer(transaction, record, sent))


async def _new_messages(
    transaction: Transaction, tenant: Tenant, thread_id: ThreadId, request: InputRequest
) -> tuple[Message, ...] | AcceptedInput:
    """The messages that the thread doesn't have; if it has all, the run that has them."""
    connection = transaction.connection
    sent = await new_messages(connection, tenant, thread_id, request.messages, request.chosen_ids)
    if sent.reader is None:
        return sent.new
    return AcceptedInput(await found_run(connection, tenant, sent.reader), ())


async def _resume(
    ctx: ServiceContext,
    principal: Principal,
    transaction: Transaction,
    thread_id: ThreadId,
    known: RunRecord | None,
    request: InputRequest,
    *,
    deliver: bool,
) -> AcceptedInput:
    """Resume the run with this id, or else the thread's open run."""
    connection, tenant = transaction.connection, principal.tenant
    thread = await locked_thread(connection, tenant, thread_id)
    sent = await _new_messages(transaction, tenant, thread_id, request)
    if isinstance(sent, AcceptedInput):
        return sent
    run_id = thread.open_run_id if known is None else known.id
    if run_id is None:
        raise Conflict(
            "run_not_waiting",
            'The thread has no open run. Send the messages with mode "queue".',
        )
    record = await locked_run(connection, tenant, run_id)
    require_supported(ctx, record.agent_id, RootNeeds(continuation=True))
    input_ids, to_claim = await resume_waiting_run(
        ctx, principal, transaction, record, sent, deliver=deliver
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
    """Like a start with the same messages, but the thread must exist."""
    connection, tenant = transaction.connection, principal.tenant
    await found_thread(connection, tenant, thread_id)
    start = StartRequest(
        agent_id=request.agent_id,
        thread_id=thread_id,
        run_id=None,
        messages=request.messages,
        chosen_ids=request.chosen_ids,
        on_active=_ON_ACTIVE[request.mode],
        if_thread_missing=IfThreadMissing.REJECT,
        metadata={},
        digest=digest(["input", new_id()]),
        traceparent=request.traceparent,
        transport_request_id=request.transport_request_id,
        limits=request.limits,
    )
    accepted = await enqueue_or_join(ctx, principal, transaction, start, deliver=deliver)
    if accepted is None:
        raise RuntimeError("the new run's id is taken")
    if accepted.is_new:
        telemetry.runs_started.labels(accepted.record.agent_id).inc()
    return AcceptedInput(
        accepted.record, accepted.input_ids, accepted.to_claim, accepted.interrupted
    )
