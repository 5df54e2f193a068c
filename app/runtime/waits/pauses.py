"""Pausing: a run with a pause request suspends at its next step border."""

from app.domain.events.run_events import AgentEvent, StepEnd
from app.domain.runs.runs import MANUAL_PAUSE
from app.domain.tickets.tickets import TicketStatus
from app.runtime.active_run import ActiveRun
from app.runtime.endings import Ending, Suspended, save_suspension


async def pause_if_requested(run: ActiveRun) -> Ending | None:
    """Suspend the run; None when it has no pause request, or when the commit finds that removed.

    Within a step, which happens after a takeover only, the step is begun again when the run is resumed.
    """
    if not run.wants_pause:
        return None
    said: list[AgentEvent] = [StepEnd()] if run.in_step else []
    still_open = [ticket for ticket in run.tickets if ticket.status is TicketStatus.OPEN]
    return (
        Suspended() if await save_suspension(run, MANUAL_PAUSE, still_open, [], said=said) else None
    )
