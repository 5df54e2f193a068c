"""Finds tickets whose questions were answered at the remote itself."""

import asyncio
from collections.abc import Collection

import structlog

from app.backends.base import Backend, BackendError, PendingQuestions
from app.backends.remote.questions import name_of
from app.domain.ids import RunId
from app.domain.json_values import JsonObject
from app.domain.tickets.tickets import Ticket, TicketStatus

STATUS_TIMEOUT_SECONDS = 10.0
"""Time-out of the request to the remote."""

log = structlog.get_logger(__name__)


async def tickets_decided_remotely(
    backend: Backend, run_id: RunId, binding: JsonObject | None, tickets: Collection[Ticket]
) -> list[Ticket] | None:
    """Return the run's open tickets whose questions are no longer open at the remote.

    None if both have the same questions. An unreachable remote counts as unchanged; it is polled again later.
    """
    still_open = [ticket for ticket in tickets if ticket.status is TicketStatus.OPEN]
    if binding is None or not still_open:
        return None
    questions = frozenset(name_of(ticket) for ticket in still_open)
    try:
        async with asyncio.timeout(STATUS_TIMEOUT_SECONDS):
            pending = await backend.pending_questions(
                PendingQuestions(run_id=run_id, binding=binding, questions=questions)
            )
    except (BackendError, TimeoutError) as error:
        log.info("remote_poll_failed", run_id=run_id, error=repr(error)[:300])
        return None
    if pending == questions:
        return None
    return [ticket for ticket in still_open if name_of(ticket) not in pending]
