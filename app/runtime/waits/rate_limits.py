"""Rate limits at work: a pause that is too long for a worker suspends the run until its end.

The run resumes without a person: the checkpoint enqueues a delivery for that moment. A step that was begun
is begun again, under the same number; text that its answer has is kept and completed.
"""

import random
from datetime import datetime
from typing import assert_never

import structlog

from app import telemetry
from app.domain.events.run_events import StepEnd
from app.domain.events.run_finish import finish_suspended
from app.domain.runs.rate_limits import ResumeAt, TimedPause, WaitExceeded, plan_wait
from app.domain.runs.runs import RATE_LIMIT, Waiting, waiting_reason
from app.domain.runs.terminations import RATE_LIMIT_WAIT_EXCEEDED
from app.runtime.active_run import ActiveRun
from app.runtime.endings import Ending, Suspended, fail
from app.runtime.inference.rate_limit_waits import note_waits, waits_so_far

log = structlog.get_logger(__name__)


async def wait_for_pause(run: ActiveRun, pause: TimedPause) -> Ending:
    """Suspend the run until the pause is over, or end it when it would wait longer than it may."""
    waits = waits_so_far(run)
    planned = plan_wait(pause, waits, run.rate_limits, at=run.clock.now(), chance=random.random())
    match planned:
        case WaitExceeded(detail):
            return await fail(run, RATE_LIMIT_WAIT_EXCEEDED, detail)
        case ResumeAt(until, made):
            note_waits(run, made)
            return await _suspend_until(run, until, pause)
        case _:
            assert_never(planned)


async def _suspend_until(run: ActiveRun, until: datetime, pause: TimedPause) -> Suspended:
    if run.in_step:
        run.emit(StepEnd())
        run.in_step = False
    waiting = Waiting(waiting_reason(RATE_LIMIT), RATE_LIMIT, until)
    await run.save(
        state=waiting,
        finish=finish_suspended(run.record, waiting, [], detail=pause.sentence),
    )
    telemetry.rate_limit_waits.labels(run.agent.model.name, pause.asked_by.value).observe(
        pause.seconds
    )
    log.info(
        "rate_limit_wait", until=until.isoformat(), asked_by=pause.asked_by, source=pause.source
    )
    return Suspended()
