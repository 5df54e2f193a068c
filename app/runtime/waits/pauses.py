"""Pausing: a run with a pause request suspends at its next step border."""

from app.domain.events.agent_events import AgentEvent
from app.domain.events.step_events import StepEnd
from app.domain.runs.runs import MANUAL_PAUSE
from app.domain.tickets.tickets import TicketStatus
from app.runtime.active_run import ActiveRun
from app.runtime.endings import Ending, Suspended, save_suspension


async def pause_if_requested(run: ActiveRun) -> Ending | None:
    """Suspend the run. None if it has no pause request, or if the request was removed before the commit.

    Only after a takeover this happens within a step; that step begins again after the resume.
    """
    if not run.wants_pause:
        return None
    events: list[AgentEvent] = [StepEnd()] if run.in_step else []
    still_open = [ticket for ticket in run.tickets if ticket.status is TicketStatus.OPEN]
    return (
        Suspended()
        if await save_suspension(run, MANUAL_PAUSE, still_open, [], events=events)
        else None
    )
