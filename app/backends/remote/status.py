"""Whether a remote that has asked still waits for just that: somebody may have answered it there."""

import asyncio
from collections.abc import Collection

import structlog

from app.backends.base import Backend, BackendError, PendingQuestions
from app.backends.remote.questions import name_of
from app.domain.ids import RunId
from app.domain.json_values import JsonObject
from app.domain.tickets.tickets import Ticket, TicketStatus

STATUS_TIMEOUT_SECONDS = 10.0
"""Seconds that the remote has to say so."""

log = structlog.get_logger(__name__)


async def tickets_decided_remotely(
    backend: Backend, run_id: RunId, binding: JsonObject | None, tickets: Collection[Ticket]
) -> list[Ticket] | None:
    """Which of a run's open tickets the remote doesn't wait for any more; None while it waits for all of
    them and nothing else. One that can't be asked counts as waiting: it will be asked again."""
    still_open = [ticket for ticket in tickets if ticket.status is TicketStatus.OPEN]
    if binding is None or not still_open:
        return None
    questions = frozenset(name_of(ticket) for ticket in still_open)
    try:
        async with asyncio.timeout(STATUS_TIMEOUT_SECONDS):
            asked = await backend.pending_questions(
                PendingQuestions(run_id=run_id, binding=binding, questions=questions)
            )
    except (BackendError, TimeoutError) as error:
        log.info("remote_not_looked_at", run_id=run_id, error=repr(error)[:300])
        return None
    if asked == questions:
        return None
    return [ticket for ticket in still_open if name_of(ticket) not in asked]
