"""Expire: tell a run that nobody has answered in time, and remind people before that.

When a time has come is for the database's clock to say, and each thing is done under its run's lock: so
it is done once, by however many replicas, whatever their own clocks say. Of an answer and the end of
the time, whichever has the run's lock first counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from app.commands.runs.cancel import request_cancel
from app.context import ServiceContext
from app.domain.events.command_events import TicketExpired, TicketReminder
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.tickets.terms import OnExpiry
from app.domain.tickets.tickets import Ticket, can_resume
from app.domain.timestamps import format_timestamp
from app.events.transaction import Transaction
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from app.storage.threads import threads
from app.storage.tickets import expiry, tickets

log = structlog.get_logger(__name__)

SYSTEM_SUBJECT = "expiry"
"""Who has wished for the end of a run whose ticket nobody answered."""


@dataclass(frozen=True, slots=True)
class ExpiryCounts:
    """What one look at the clock has brought about."""

    expired: int = 0
    reminded: int = 0

    def __add__(self, other: "ExpiryCounts") -> "ExpiryCounts":
        return ExpiryCounts(self.expired + other.expired, self.reminded + other.reminded)


async def expire_due(ctx: ServiceContext, limit: int) -> ExpiryCounts:
    """Expire what is due and remind people of what will be, of every tenant."""
    async with ctx.database.reading() as connection:
        due = await expiry.runs_with_due(connection, limit)
    seen = ExpiryCounts()
    for tenant, thread_id, run_id in due:
        try:
            seen += await _look_at_run(ctx, tenant, thread_id, run_id)
        except DATABASE_UNAVAILABLE:
            raise
        except Exception:
            # One run that can't be dealt with mustn't keep all others waiting.
            log.exception("deadline_failed", tenant=tenant, run_id=run_id)
    return seen


async def _look_at_run(
    ctx: ServiceContext, tenant: Tenant, thread_id: ThreadId, run_id: RunId
) -> ExpiryCounts:
    interrupted = None
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        thread = await threads.lock(connection, tenant, thread_id)
        record = await runs.lock(connection, tenant, run_id)
        if thread is None or record is None or record.is_done:
            return ExpiryCounts()
        expired = await expiry.expire_due(connection, tenant, run_id)
        _say_expired(transaction, record, expired)
        reminded = await expiry.remind_due(connection, tenant, run_id)
        _say_reminders(transaction, record, reminded)
        fatal = [t for t in expired if t.terms.on_expiry is OnExpiry.CANCEL_RUN]
        if fatal:
            interrupted = await request_cancel(
                transaction, thread, record, by=SYSTEM_SUBJECT, reason=_reason(fatal[0])
            )
        elif (
            expired
            and record.status is RunStatus.WAITING
            and not record.is_paused
            and can_resume(await tickets.unsettled_of_run(connection, tenant, run_id))
        ):
            key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
            await deliveries.enqueue(connection, key)
    if interrupted is not None:
        await ctx.announce_cancel(tenant, run_id, interrupted.reason)
    return ExpiryCounts(len(expired), len(reminded))


def _say_expired(transaction: Transaction, record: RunRecord, expired: Sequence[Ticket]) -> None:
    for ticket in expired:
        event = TicketExpired(ticket.id, ticket.name, ticket.terms.on_expiry.value)
        transaction.emit(record.tenant, record.thread_id, record.id, event)


def _say_reminders(
    transaction: Transaction, record: RunRecord, reminded: Sequence[tuple[Ticket, float]]
) -> None:
    for ticket, left in reminded:
        assert ticket.expires_at is not None
        event = TicketReminder(
            ticket.id, ticket.name, format_timestamp(ticket.expires_at), max(0.0, round(left, 3))
        )
        transaction.emit(record.tenant, record.thread_id, record.id, event)


def _reason(ticket: Ticket) -> str:
    return f"nobody answered ticket {ticket.name!r} in time"
