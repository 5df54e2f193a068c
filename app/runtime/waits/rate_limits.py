"""Suspends a run for a pause that is too long for a worker to wait.

The run resumes without a person: the checkpoint enqueues a delivery for that time. An open step begins again
under the same number, and continues the text of its interrupted answer.
"""

import random
from datetime import datetime
from typing import assert_never

import structlog

from app import telemetry
from app.domain.events.run_finish import finish_suspended
from app.domain.events.step_events import StepEnd
from app.domain.runs.rate_limits import ResumeAt, TimedPause, WaitExceeded, plan_wait
from app.domain.runs.runs import RATE_LIMIT, Waiting, waiting_reason
from app.domain.runs.terminations import RATE_LIMIT_WAIT_EXCEEDED
from app.runtime.active_run import ActiveRun
from app.runtime.endings import Ending, Suspended, fail
from app.runtime.inference.rate_limit_waits import current_waits, record_waits

log = structlog.get_logger(__name__)


async def wait_for_pause(run: ActiveRun, pause: TimedPause) -> Ending:
    """Suspend the run until the pause is over; fail it if the sum of its waits would exceed the limit."""
    waits = current_waits(run)
    plan = plan_wait(pause, waits, run.rate_limits, at=run.clock.now(), chance=random.random())
    match plan:
        case WaitExceeded(detail):
            return await fail(run, RATE_LIMIT_WAIT_EXCEEDED, detail)
        case ResumeAt(until, new_waits):
            record_waits(run, new_waits)
            return await _suspend_until(run, until, pause)
        case _:
            assert_never(plan)


async def _suspend_until(run: ActiveRun, until: datetime, pause: TimedPause) -> Suspended:
    if run.in_step:
        run.emit(StepEnd())
        run.in_step = False
    waiting = Waiting(waiting_reason(RATE_LIMIT), RATE_LIMIT, until)
    await run.save(
        state=waiting,
        finish=finish_suspended(run.record, waiting, [], detail=pause.sentence),
    )
    telemetry.rate_limit_waits.labels(run.agent.model.name, pause.origin.value).observe(
        pause.seconds
    )
    log.info(
        "run_suspended_for_rate_limit",
        until=until.isoformat(),
        origin=pause.origin,
        source=pause.source,
    )
    return Suspended()
