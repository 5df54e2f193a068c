"""Launching: a run that may go on and finds a free slot here is executed here, without a delivery."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import structlog

from app.commands.idempotency import IdempotentCommand
from app.commands.inputs.send import AcceptedInput, InputRequest, Target, send_input
from app.commands.runs.enqueue import JoinedRun, Queued
from app.commands.runs.new_run import StartRequest
from app.commands.runs.pause import Unpaused, unpause
from app.commands.runs.retry import RetryRequest, retry
from app.commands.runs.start import AlreadyStarted, ClaimedStart, start_run
from app.commands.tickets.decide import Decided, decide
from app.commands.tickets.decision_types import DecisionRequest
from app.context import ServiceContext
from app.domain.ids import RunId
from app.domain.principals import Principal
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.threads.messages import LoggedMessage
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.runs.runs import RunKey
from app.workers.execution_context import ClaimedRun
from app.workers.worker import Worker

T = TypeVar("T")

log = structlog.get_logger(__name__)


async def start_and_execute(
    ctx: ServiceContext,
    worker: Worker | None,
    principal: Principal,
    request: StartRequest,
    once: IdempotentCommand[RunRecord] | None = None,
) -> ClaimedStart | Queued | JoinedRun | AlreadyStarted:
    """Start a run and, when it was claimed for this process, let it go at once."""
    if worker is None or not worker.reserve():
        return await start_run(ctx, principal, request, worker=None, once=once)
    try:
        started = await start_run(ctx, principal, request, worker=worker.worker_id, once=once)
    except BaseException:
        worker.free()
        raise
    if not isinstance(started, ClaimedStart):
        await _claim(worker, started.to_claim if isinstance(started, Queued) else None)
        return started
    first = started.first_message_seq
    log = tuple(LoggedMessage(first + place, m) for place, m in enumerate(started.messages))
    worker.launch(
        ClaimedRun(
            record=started.record,
            next_seq=first + len(log),
            previous_state=RunStatus.CREATED,
            log=log if first == 1 else None,
            is_announced=True,
            thread_state=started.thread_state,
        )
    )
    return started


async def retry_and_execute(
    ctx: ServiceContext,
    worker: Worker | None,
    principal: Principal,
    run_id: RunId,
    request: RetryRequest,
    once: IdempotentCommand[RunRecord] | None = None,
) -> Queued:
    """Start a run in a failed one's place, and let it go at once."""

    async def command(deliver: bool) -> Queued:
        return await retry(ctx, principal, run_id, request, deliver=deliver, once=once)

    return await _with_a_slot(worker, command, lambda line: line.to_claim)


async def decide_and_execute(
    ctx: ServiceContext,
    worker: Worker | None,
    principal: Principal,
    run_id: RunId,
    requests: Sequence[DecisionRequest],
    once: IdempotentCommand[Decided] | None = None,
) -> Decided:
    """Record answers to tickets, and let their run go on at once."""

    async def command(deliver: bool) -> Decided:
        return await decide(ctx, principal, run_id, requests, deliver=deliver, once=once)

    return await _with_a_slot(worker, command, lambda decided: decided.to_resume)


async def resume_run(
    ctx: ServiceContext,
    worker: Worker | None,
    principal: Principal,
    run_id: RunId,
    once: IdempotentCommand[Unpaused] | None = None,
) -> Unpaused:
    """Remove a run's pause, and execute the run here if there is a slot."""

    async def command(deliver: bool) -> Unpaused:
        return await unpause(ctx, principal, run_id, deliver=deliver, once=once)

    return await _with_a_slot(worker, command, lambda unpaused: unpaused.to_claim)


async def send_and_execute(
    ctx: ServiceContext,
    worker: Worker | None,
    principal: Principal,
    to: Target,
    request: InputRequest,
    once: IdempotentCommand[AcceptedInput] | None = None,
) -> AcceptedInput:
    """Send messages to a run or a thread, and let a run that was started for them go at once."""

    async def command(deliver: bool) -> AcceptedInput:
        return await send_input(ctx, principal, to, request, deliver=deliver, once=once)

    return await _with_a_slot(worker, command, lambda accepted: accepted.to_claim)


async def _with_a_slot(
    worker: Worker | None,
    command: Callable[[bool], Awaitable[T]],
    goes_on: Callable[[T], RunKey | None],
) -> T:
    """Carry out a command, which is told whether it has to deliver the run that goes on by it: not if
    there is a slot for it here."""
    if worker is None or not worker.reserve():
        return await command(True)
    try:
        answer = await command(False)
    except BaseException:
        worker.free()
        raise
    await _claim(worker, goes_on(answer))
    return answer


async def _claim(worker: Worker, key: RunKey | None) -> None:
    """Execute a committed run in the reserved slot, or give that back."""
    if key is None:
        worker.free()
        return
    try:
        await worker.claim_and_launch(key, None)
    except DATABASE_UNAVAILABLE:
        log.warning("resume_left_to_the_sweeper", run_id=key.run_id)
