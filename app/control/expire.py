"""Expire: tell a run that nobody has answered in time, and remind people before that.

When a time has come is for the database's clock to say, and each thing is done under its run's lock: so
it is done once, by however many replicas, whatever their own clocks say. Of an answer and the end of
the time, whichever has the run's lock first counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from app.control.cancel import request_cancel
from app.control.desk import Desk
from app.domain.control_events import TicketExpired, TicketReminder
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs import RunRecord, RunStatus
from app.domain.ticket_terms import OnExpiry
from app.domain.tickets import Ticket, can_go_on
from app.domain.times import wire_time
from app.events.outgoing import Transaction
from app.storage import deliveries, runs, threads, ticket_deadlines, tickets
from app.storage.database import DATABASE_AWAY
from app.storage.runs import RunKey

log = structlog.get_logger(__name__)

ON_ITS_BEHALF = "expiry"
"""Who has wished for the end of a run whose ticket nobody answered."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look at the clock has brought about."""

    expired: int = 0
    reminded: int = 0

    def __add__(self, other: "Seen") -> "Seen":
        return Seen(self.expired + other.expired, self.reminded + other.reminded)


async def look_at_the_clock(desk: Desk, limit: int) -> Seen:
    """Expire what is due and remind people of what will be, of every tenant."""
    async with desk.database.reading() as connection:
        due = await ticket_deadlines.runs_with_due(connection, limit)
    seen = Seen()
    for tenant, thread_id, run_id in due:
        try:
            seen += await _look_at_run(desk, tenant, thread_id, run_id)
        except DATABASE_AWAY:
            raise
        except Exception:
            # One run that can't be dealt with mustn't keep all others waiting.
            log.exception("deadline_failed", tenant=tenant, run_id=run_id)
    return seen


async def _look_at_run(desk: Desk, tenant: Tenant, thread_id: ThreadId, run_id: RunId) -> Seen:
    interrupted = None
    async with desk.outgoing.transaction() as transaction:
        connection = transaction.connection
        thread = await threads.lock(connection, tenant, thread_id)
        record = await runs.lock(connection, tenant, run_id)
        if thread is None or record is None or record.is_done:
            return Seen()
        expired = await ticket_deadlines.expire_due(connection, tenant, run_id)
        _say_expired(transaction, record, expired)
        reminded = await ticket_deadlines.remind_due(connection, tenant, run_id)
        _say_reminders(transaction, record, reminded)
        fatal = [t for t in expired if t.terms.on_expiry is OnExpiry.CANCEL_RUN]
        if fatal:
            interrupted = await request_cancel(
                transaction, thread, record, by=ON_ITS_BEHALF, reason=_reason(fatal[0])
            )
        elif (
            expired
            and record.status is RunStatus.WAITING
            and not record.is_paused
            and can_go_on(await tickets.unsettled_of_run(connection, tenant, run_id))
        ):
            key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
            await deliveries.enqueue(connection, key)
    if interrupted is not None:
        await desk.announce_cancel(tenant, run_id, interrupted.reason)
    return Seen(len(expired), len(reminded))


def _say_expired(transaction: Transaction, record: RunRecord, expired: Sequence[Ticket]) -> None:
    for ticket in expired:
        event = TicketExpired(ticket.key, ticket.ticket_id, ticket.terms.on_expiry.value)
        transaction.say(record.tenant, record.thread_id, record.id, event)


def _say_reminders(
    transaction: Transaction, record: RunRecord, reminded: Sequence[tuple[Ticket, float]]
) -> None:
    for ticket, left in reminded:
        assert ticket.expires_at is not None
        event = TicketReminder(
            ticket.key, ticket.ticket_id, wire_time(ticket.expires_at), max(0.0, round(left, 3))
        )
        transaction.say(record.tenant, record.thread_id, record.id, event)


def _reason(ticket: Ticket) -> str:
    return f"nobody answered ticket {ticket.ticket_id!r} in time"
