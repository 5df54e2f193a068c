"""Launching: a start that finds a free slot here is executed here, without a delivery."""

from app.control.desk import Desk
from app.control.start import Existing, InLine, StartRequest, ToExecute, start
from app.dispatch.execution import ClaimedRun
from app.dispatch.worker import Worker
from app.domain.messages import LoggedMessage
from app.domain.principals import Principal
from app.domain.runs import RunStatus


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
        )
    )
    return started
