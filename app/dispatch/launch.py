"""Launching: a run that may go on and finds a free slot here is executed here, without a delivery."""

from collections.abc import Sequence

import structlog

from app.control.decide import Decided, DecisionRequest, decide
from app.control.desk import Desk
from app.control.start import Existing, InLine, StartRequest, ToExecute, start
from app.dispatch.execution import ClaimedRun
from app.dispatch.worker import Worker
from app.domain.ids import RunId
from app.domain.messages import LoggedMessage
from app.domain.principals import Principal
from app.domain.runs import RunStatus
from app.storage.database import DATABASE_AWAY

log = structlog.get_logger(__name__)


async def start_run(
    desk: Desk, worker: Worker | None, principal: Principal, request: StartRequest
) -> ToExecute | InLine | Existing:
    """Start a run and, when it was claimed for this process, let it go at once."""
    if worker is None or not worker.reserve():
        return await start(desk, principal, request, worker=None)
    try:
        started = await start(desk, principal, request, worker=worker.me)
    except BaseException:
        worker.free()
        raise
    if not isinstance(started, ToExecute):
        worker.free()
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


async def decide_and_resume(
    desk: Desk,
    worker: Worker | None,
    principal: Principal,
    run_id: RunId,
    requests: Sequence[DecisionRequest],
) -> Decided:
    """Record answers to tickets, and let their run go on at once."""
    if worker is None or not worker.reserve():
        return await decide(desk, principal, run_id, requests)
    try:
        decided = await decide(desk, principal, run_id, requests, deliver=False)
    except BaseException:
        worker.free()
        raise
    if decided.to_resume is None:
        worker.free()
        return decided
    try:
        await worker.claim_and_launch(decided.to_resume, None)
    except DATABASE_AWAY:
        log.warning("resume_left_to_the_sweeper", run_id=run_id)
    return decided
