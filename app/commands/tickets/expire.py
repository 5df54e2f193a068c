"""Expire tickets whose time is over, and send reminders before that.

The database's clock decides what is due, and each change is made under the run's lock. So it is made once,
also with many replicas whose clocks differ. Of an answer and the expiry, the one that locks the run first
counts.
"""

from collections.abc import Sequence

import structlog
from msgspec import Struct

from app.commands.runs.cancel import announce_cancel, request_cancel
from app.context import ServiceContext
from app.domain.events.ticket_events import TicketExpired, TicketReminder
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.tickets.terms import OnExpiry
from app.domain.tickets.tickets import Ticket, can_resume
from app.domain.timestamps import format_timestamp
from app.events.transaction import Transaction
from app.storage.children import child_runs
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from app.storage.threads import threads
from app.storage.tickets import expiry, tickets

log = structlog.get_logger(__name__)

SYSTEM_SUBJECT = "expiry"
"""The subject of a cancel request for a run whose ticket expired."""


class ExpiryCounts(Struct, frozen=True):
    """How many tickets were expired, and for how many a reminder was sent."""

    expired: int = 0
    reminded: int = 0

    def __add__(self, other: "ExpiryCounts") -> "ExpiryCounts":
        return ExpiryCounts(self.expired + other.expired, self.reminded + other.reminded)


async def expire_due(ctx: ServiceContext, limit: int) -> ExpiryCounts:
    """Expire due tickets and send due reminders, of all tenants."""
    async with ctx.database.reading() as connection:
        due = await expiry.runs_with_due(connection, limit)
    counts = ExpiryCounts()
    for tenant, thread_id, run_id in due:
        try:
            counts += await _expire_of_run(ctx, tenant, thread_id, run_id)
        except DATABASE_UNAVAILABLE:
            raise
        except Exception:
            # A failure of one run must not keep the others from being handled.
            log.exception("ticket_expiry_of_run_failed", tenant=tenant, run_id=run_id)
    return counts


async def _expire_of_run(
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
        _emit_expired(transaction, record, expired)
        if expired and (parent := record.lineage.parent_run_id) is not None:
            await child_runs.show_tickets(connection, tenant, parent, run_id)
        reminded = await expiry.remind_due(connection, tenant, run_id)
        _emit_reminders(transaction, record, reminded)
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
    await announce_cancel(ctx, interrupted)
    return ExpiryCounts(len(expired), len(reminded))


def _emit_expired(transaction: Transaction, record: RunRecord, expired: Sequence[Ticket]) -> None:
    for ticket in expired:
        event = TicketExpired(ticket.id, ticket.terms.on_expiry.value)
        transaction.emit(record.tenant, record.thread_id, record.id, event)


def _emit_reminders(
    transaction: Transaction, record: RunRecord, reminded: Sequence[tuple[Ticket, float]]
) -> None:
    for ticket, left in reminded:
        assert ticket.expires_at is not None
        event = TicketReminder(
            ticket.id, format_timestamp(ticket.expires_at), max(0.0, round(left, 3))
        )
        transaction.emit(record.tenant, record.thread_id, record.id, event)


def _reason(ticket: Ticket) -> str:
    return f"ticket {ticket.name!r} was not answered in time"
