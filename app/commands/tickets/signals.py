"""Signals: sent once per id, durable first, then delivered to each ticket in a transaction of its own.

A process that dies in between has lost nothing: a queued job, or the same request again, completes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from app import telemetry
from app.clock import yield_to_loop
from app.commands.tickets.decision_types import ticket_decided
from app.context import ServiceContext
from app.domain.errors import Conflict, Invalid, TooMany
from app.domain.ids import RunId, Tenant, TicketKey
from app.domain.json_values import Json, JsonObject, digest
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.signals import (
    MAX_KEPT_PER_KEY,
    DeliverSignal,
    MatchWait,
    Signal,
    SignalJob,
    SignalOutcome,
    SignalStatus,
    SignalTicket,
    StoredSignal,
    status_of_delivery,
)
from app.domain.tickets.decisions import Action, Decision, DecisionAnswer
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.events.transaction import Transaction
from app.storage.postgres.database import Connection
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from app.storage.tickets import decisions, signals, tickets
from app.storage.tickets.signals import WaitingTicket
from app.tools.schemas.subset import problem_of_schema, subset_validator

MAX_TICKETS_AT_ONCE = 100
"""Tickets that one request answers itself; the job answers the others."""
JOB_DELAY_SECONDS = 2.0
"""The request is faster than the job, unless its process dies."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSignal:
    """A signal as it is asked for."""

    id: str
    name: str
    key: str
    payload: Json


async def send(ctx: ServiceContext, principal: Principal, new: NewSignal) -> StoredSignal:
    """Answer every open ticket for this name and key, or keep the signal for the next one."""
    principal.require(Scope.SIGNALS_WRITE)
    signal = Signal(
        tenant=principal.tenant,
        id=new.id,
        name=new.name,
        key=new.key,
        payload=new.payload,
        sent_by=principal.subject,
    )
    async with ctx.database.transaction() as connection:
        await signals.lock_key(connection, signal.tenant, signal.name, signal.key)
        known = await signals.find(connection, signal.tenant, signal.id)
        if known is None and not await _store(connection, signal, ctx.limits.signal_seconds):
            known = await signals.find(connection, signal.tenant, signal.id)
        if known is not None and known.fingerprint != signal.fingerprint:
            raise Conflict(
                "signal_id_conflict",
                f"Another signal was sent under the id {signal.id!r}. Use a new one.",
            )
    if known is None or known.answer is None:
        await complete(ctx, signal.tenant, signal.id)
    return await _stored(ctx, signal)


async def run_signal_job(ctx: ServiceContext, job: SignalJob) -> None:
    """Complete what a request or a checkpoint has left to be done."""
    match job:
        case DeliverSignal(tenant=tenant, id=id):
            if not await complete(ctx, tenant, id):
                async with ctx.database.transaction() as connection:
                    await deliveries.enqueue_signal_job(connection, job)
        case MatchWait(tenant=tenant, run_id=run_id, ticket=ticket):
            await match_wait(ctx, tenant, run_id, ticket)


async def _stored(ctx: ServiceContext, signal: Signal) -> StoredSignal:
    async with ctx.database.reading() as connection:
        stored = await signals.find(connection, signal.tenant, signal.id)
    if stored is None:
        raise Conflict(
            "signal_id_conflict",
            f"The signal {signal.id!r} was removed, because its retention is over. Use a new id.",
        )
    return stored


async def _store(connection: Connection, signal: Signal, kept_for: float) -> bool:
    """Store the signal with the tickets that it is for; False when another one has its id."""
    waiting = await signals.waiting_for(connection, signal.tenant, signal.name, signal.key)
    met = await _met(signal, waiting)
    fits = any(each.outcome is SignalOutcome.PENDING for each in met)
    if met and not fits:
        raise Invalid(
            "signal_payload_mismatch",
            f"No ticket that waits for {signal.name!r} takes this payload: {met[0].problem}",
            tickets=[{"id": each.ticket, "problem": each.problem} for each in met[:20]],
        )
    if not fits:
        kept = await signals.count_kept(connection, signal.tenant, signal.name, signal.key)
        if kept >= MAX_KEPT_PER_KEY:
            raise TooMany(
                "queue_full",
                f"{kept} signals with this name and key wait for a ticket. Send it again later.",
            )
    status = SignalStatus.DELIVERING if fits else SignalStatus.KEPT
    if not await signals.add(connection, signal, status, kept_for=kept_for):
        return False
    await signals.add_tickets(connection, signal.tenant, signal.id, met)
    if fits:
        job = DeliverSignal(tenant=signal.tenant, id=signal.id)
        await deliveries.enqueue_signal_job(connection, job, after=JOB_DELAY_SECONDS)
    telemetry.signals.labels(status.value).inc()
    return True


async def _met(signal: Signal, waiting: Sequence[WaitingTicket]) -> list[SignalTicket]:
    """Which of the tickets the payload fits. Tickets of one tool have one schema: each is checked once."""
    problems: dict[str, str | None] = {}
    met = []
    for each in waiting:
        name = digest(each.schema)
        if name not in problems:
            problems[name] = payload_problem(each.schema, signal.payload)
            await yield_to_loop()
        problem = problems[name]
        outcome = SignalOutcome.PENDING if problem is None else SignalOutcome.PAYLOAD_MISMATCH
        met.append(
            SignalTicket(
                ticket=each.ticket,
                run_id=each.run_id,
                thread_id=each.thread_id,
                outcome=outcome,
                problem=problem,
            )
        )
    return met


def payload_problem(schema: JsonObject | None, payload: Json) -> str | None:
    """Why a ticket's schema doesn't take the payload; None when it does."""
    if schema is None:
        return None
    return problem_of_schema(schema) or subset_validator(schema).problem(payload)


# --- delivering -----------------------------------------------------------------------------------


async def complete(ctx: ServiceContext, tenant: Tenant, id: str) -> bool:
    """Deliver a signal to tickets that it hasn't been delivered to; False when some are left."""
    async with ctx.database.reading() as connection:
        stored = await signals.find(connection, tenant, id)
        if stored is None or stored.answer is not None:
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
        outcome = _outcome(record, ticket)
        if not await signals.settle_ticket(
            connection, signal.tenant, signal.id, to.ticket, outcome
        ):
            return
        if outcome is SignalOutcome.ANSWERED and record is not None and ticket is not None:
            await _decide(transaction, record, ticket, signal)
    telemetry.signal_tickets.labels(outcome.value).inc()


def _outcome(record: RunRecord | None, ticket: Ticket | None) -> SignalOutcome:
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
    """Say what the signal has come to. One that has answered no ticket is kept for the next one."""
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
    """Tickets that were opened while the signal was being delivered haven't seen it among the kept ones."""
    for each in await signals.waiting_for(connection, signal.tenant, signal.name, signal.key):
        job = MatchWait(tenant=signal.tenant, run_id=each.run_id, ticket=each.ticket)
        await deliveries.enqueue_signal_job(connection, job)


# --- kept signals ---------------------------------------------------------------------------------


async def match_wait(ctx: ServiceContext, tenant: Tenant, run_id: RunId, key: TicketKey) -> None:
    """Let an open ticket take the oldest kept signal that fits it."""
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        record = await runs.lock(connection, tenant, run_id)
        ticket = await tickets.get(connection, tenant, key)
        if record is None or ticket is None or ticket.event is None:
            return
        if ticket.status is not TicketStatus.OPEN:
            return
        wait = ticket.event
        await signals.lock_key(connection, tenant, wait.name, wait.key)
        for stored in await signals.kept_for(connection, tenant, wait, key):
            problem = payload_problem(ticket.response_schema, stored.signal.payload)
            await yield_to_loop()
            if problem is not None:
                await _note_offer(connection, ticket, stored.signal, problem)
            elif await signals.take(connection, tenant, stored.signal.id):
                await _note_offer(connection, ticket, stored.signal, None)
                await _decide(transaction, record, ticket, stored.signal)
                return


async def _note_offer(
    connection: Connection, ticket: Ticket, signal: Signal, problem: str | None
) -> None:
    outcome = SignalOutcome.ANSWERED if problem is None else SignalOutcome.PAYLOAD_MISMATCH
    offered = SignalTicket(
        ticket=ticket.id,
        run_id=ticket.run_id,
        thread_id=ticket.thread_id,
        outcome=outcome,
        problem=problem,
    )
    await signals.add_tickets(connection, signal.tenant, signal.id, [offered], waited=False)
    telemetry.signal_tickets.labels(outcome.value).inc()
    if problem is not None:
        log.warning("signal_payload_mismatch", signal=signal.id, ticket=ticket.id, problem=problem)


async def _decide(
    transaction: Transaction, record: RunRecord, ticket: Ticket, signal: Signal
) -> None:
    """Record the payload as the ticket's answer, and wake its run; the caller has locked the run."""
    connection = transaction.connection
    decision = Decision(
        decision_id=signal.decision_id,
        answer=DecisionAnswer(action=Action.RESPOND, result=signal.payload),
        subject=signal.sent_by,
        at=transaction.now,
    )
    telemetry.decisions.labels(decision.answer.action.value).inc()
    await decisions.decide(connection, record.tenant, ticket.id, decision)
    event = ticket_decided(ticket, decision)
    transaction.emit(record.tenant, record.thread_id, record.id, event)
    if record.status is not RunStatus.WAITING:
        return
    unsettled = await tickets.unsettled_of_run(connection, record.tenant, record.id)
    if not any(
        each.kind is TicketKind.LIMIT and each.status is TicketStatus.OPEN for each in unsettled
    ):
        key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
        await deliveries.enqueue(connection, key)
