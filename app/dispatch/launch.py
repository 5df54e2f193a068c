"""Launching: a run that may go on and finds a free slot here is executed here, without a delivery."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import structlog

from app.control.answers import DecisionRequest
from app.control.decide import Decided, decide
from app.control.desk import Desk
from app.control.inputs import Accepted, InputRequest, Target, send
from app.control.line import InLine, Joined
from app.control.new_runs import StartRequest
from app.control.once import Once
from app.control.pause import Unpaused, unpause
from app.control.retry import RetryRequest, retry
from app.control.start import Existing, ToExecute, start
from app.dispatch.bench import ClaimedRun
from app.dispatch.worker import Worker
from app.domain.ids import RunId
from app.domain.messages import LoggedMessage
from app.domain.principals import Principal
from app.domain.runs import RunRecord, RunStatus
from app.storage.database import DATABASE_AWAY
from app.storage.runs import RunKey

T = TypeVar("T")

log = structlog.get_logger(__name__)


async def start_run(
    desk: Desk,
    worker: Worker | None,
    principal: Principal,
    request: StartRequest,
    once: Once[RunRecord] | None = None,
) -> ToExecute | InLine | Joined | Existing:
    """Start a run and, when it was claimed for this process, let it go at once."""
    if worker is None or not worker.reserve():
        return await start(desk, principal, request, worker=None, once=once)
    try:
        started = await start(desk, principal, request, worker=worker.me, once=once)
    except BaseException:
        worker.free()
        raise
    if not isinstance(started, ToExecute):
        await _claim(worker, started.to_claim if isinstance(started, InLine) else None)
        return started
    first = started.first_message_seq
    log = tuple(LoggedMessage(first + place, m) for place, m in enumerate(started.messages))
    worker.launch(
        ClaimedRun(
            record=started.record,
            next_seq=first + len(log),
            was=RunStatus.CREATED,
            log=log if first == 1 else None,
            is_announced=True,
            thread_state=started.thread_state,
        )
    )
    return started


async def retry_run(
    desk: Desk,
    worker: Worker | None,
    principal: Principal,
    run_id: RunId,
    request: RetryRequest,
    once: Once[RunRecord] | None = None,
) -> InLine:
    """Start a run in a failed one's place, and let it go at once."""

    async def command(deliver: bool) -> InLine:
        return await retry(desk, principal, run_id, request, deliver=deliver, once=once)

    return await _with_a_slot(worker, command, lambda line: line.to_claim)


async def decide_and_resume(
    desk: Desk,
    worker: Worker | None,
    principal: Principal,
    run_id: RunId,
    requests: Sequence[DecisionRequest],
    once: Once[Decided] | None = None,
) -> Decided:
    """Record answers to tickets, and let their run go on at once."""

    async def command(deliver: bool) -> Decided:
        return await decide(desk, principal, run_id, requests, deliver=deliver, once=once)

    return await _with_a_slot(worker, command, lambda decided: decided.to_resume)


async def resume_run(
    desk: Desk,
    worker: Worker | None,
    principal: Principal,
    run_id: RunId,
    once: Once[Unpaused] | None = None,
) -> Unpaused:
    """Remove a run's pause, and execute the run here if there is a slot."""

    async def command(deliver: bool) -> Unpaused:
        return await unpause(desk, principal, run_id, deliver=deliver, once=once)

    return await _with_a_slot(worker, command, lambda unpaused: unpaused.to_claim)


async def send_input(
    desk: Desk,
    worker: Worker | None,
    principal: Principal,
    to: Target,
    request: InputRequest,
    once: Once[Accepted] | None = None,
) -> Accepted:
    """Send messages to a run or a thread, and let a run that was started for them go at once."""

    async def command(deliver: bool) -> Accepted:
        return await send(desk, principal, to, request, deliver=deliver, once=once)

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
    except DATABASE_AWAY:
        log.warning("resume_left_to_the_sweeper", run_id=key.run_id)
