"""Matches a signal with a ticket that waits for an event, and answers the ticket with the signal's payload."""

import structlog

from app import telemetry
from app.clock import yield_to_loop
from app.commands.tickets.decision_types import ticket_decided
from app.context import ServiceContext
from app.domain.ids import RunId, Tenant, TicketKey
from app.domain.json_values import Json, JsonObject
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.signals import (
    Signal,
    SignalOutcome,
    SignalTicket,
)
from app.domain.tickets.decisions import Action, Decision, DecisionAnswer
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.events.transaction import Transaction
from app.storage.postgres.database import Connection
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from app.storage.tickets import decisions, signals, tickets
from app.tools.schemas.subset import problem_of_schema, subset_validator

log = structlog.get_logger(__name__)


def payload_problem(schema: JsonObject | None, payload: Json) -> str | None:
    """Return why a ticket's schema refuses the payload, or None."""
    if schema is None:
        return None
    return problem_of_schema(schema) or subset_validator(schema).problem(payload)


async def match_wait(ctx: ServiceContext, tenant: Tenant, run_id: RunId, key: TicketKey) -> None:
    """Answer an open ticket with the oldest kept signal that fits its schema."""
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
                await _record_match(connection, ticket, stored.signal, problem)
            elif await signals.take(connection, tenant, stored.signal.id):
                await _record_match(connection, ticket, stored.signal, None)
                await answer_with(transaction, record, ticket, stored.signal)
                return


async def _record_match(
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


async def answer_with(
    transaction: Transaction, record: RunRecord, ticket: Ticket, signal: Signal
) -> None:
    """Record the payload as the ticket's answer, and resume its run. The caller holds the run's lock."""
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
