"""Delivers a stored signal to each of its tickets, in a transaction of its own.

The request that sent the signal does it first. A queued job does it if the process of that request dies.
"""

from app import telemetry
from app.commands.tickets.match_signal import answer_with, match_wait
from app.context import ServiceContext
from app.domain.ids import Tenant
from app.domain.runs.runs import RunRecord
from app.domain.signals import (
    DeliverSignal,
    MatchWait,
    Signal,
    SignalJob,
    SignalOutcome,
    SignalStatus,
    SignalTicket,
    status_of_delivery,
)
from app.domain.tickets.tickets import Ticket, TicketStatus
from app.storage.postgres.database import Connection
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.tickets import signals, tickets

MAX_TICKETS_AT_ONCE = 100
"""Tickets that one request answers itself; the job answers the others."""


async def run_signal_job(ctx: ServiceContext, job: SignalJob) -> None:
    """Complete the delivery that a request or a checkpoint has enqueued."""
    match job:
        case DeliverSignal(tenant=tenant, id=id):
            if not await complete(ctx, tenant, id):
                async with ctx.database.transaction() as connection:
                    await deliveries.enqueue_signal_job(connection, job)
        case MatchWait(tenant=tenant, run_id=run_id, ticket=ticket):
            await match_wait(ctx, tenant, run_id, ticket)


async def complete(ctx: ServiceContext, tenant: Tenant, id: str) -> bool:
    """Deliver a signal to tickets that it hasn't been delivered to; False when some are left."""
    async with ctx.database.reading() as connection:
        stored = await signals.find(connection, tenant, id)
        if stored is None or stored.response_status is not None:
            return True
        left = await signals.pending(connection, tenant, id, MAX_TICKETS_AT_ONCE)
    for each in left:
        await _deliver(ctx, stored.signal, each)
    if len(left) == MAX_TICKETS_AT_ONCE:
        return False
    await _finish(ctx, stored.signal)
    return True


async def _deliver(ctx: ServiceContext, signal: Signal, to: SignalTicket) -> None:
    """Answer one ticket, under its run's lock."""
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        record = await runs.lock(connection, signal.tenant, to.run_id)
        ticket = await tickets.get(connection, signal.tenant, to.ticket)
        outcome = outcome_at(record, ticket)
        if not await signals.set_outcome(connection, signal.tenant, signal.id, to.ticket, outcome):
            return
        if outcome is SignalOutcome.ANSWERED and record is not None and ticket is not None:
            await answer_with(transaction, record, ticket, signal)
    telemetry.signal_tickets.labels(outcome.value).inc()


def outcome_at(record: RunRecord | None, ticket: Ticket | None) -> SignalOutcome:
    """The result of a signal at a ticket that it fits; a deleted ticket counts as void."""
    if record is None or ticket is None:
        return SignalOutcome.VOID
    match ticket.status:
        case TicketStatus.OPEN:
            return SignalOutcome.ANSWERED
        case TicketStatus.DECIDED:
            return SignalOutcome.ALREADY_DECIDED
        case TicketStatus.EXPIRED:
            return SignalOutcome.EXPIRED
        case TicketStatus.VOID:
            return SignalOutcome.VOID


async def _finish(ctx: ServiceContext, signal: Signal) -> None:
    """Save the signal's final status. A signal that answered no ticket is kept for the next one."""
    async with ctx.database.transaction() as connection:
        await signals.lock_key(connection, signal.tenant, signal.name, signal.key)
        stored = await signals.find(connection, signal.tenant, signal.id)
        if stored is None:
            return
        status = status_of_delivery(stored.tickets)
        if status is SignalStatus.DELIVERING:
            return
        is_news = await signals.finish(connection, signal.tenant, signal.id, status)
        if is_news and status is SignalStatus.KEPT:
            await _match_opened_meanwhile(connection, signal)


async def _match_opened_meanwhile(connection: Connection, signal: Signal) -> None:
    """Enqueue a match for tickets that were opened during the delivery: they didn't find the signal
    among the kept ones."""
    for each in await signals.waiting_for(connection, signal.tenant, signal.name, signal.key):
        job = MatchWait(tenant=signal.tenant, run_id=each.run_id, ticket=each.ticket)
        await deliveries.enqueue_signal_job(connection, job)
