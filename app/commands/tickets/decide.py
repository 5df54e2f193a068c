"""Decide: answer tickets of a run, all of a batch or none.

Once this has committed the answers can't be lost. A waiting run gets a delivery in the same commit; one
that executes re-reads its tickets before it comes to rest. An answer that several people have to give is
a vote until enough of them have; one person is enough to say no. What was refused is noted, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app import telemetry
from app.commands.idempotency import IdempotentCommand, begin_once, keep_answer
from app.commands.tickets.decision_types import DecisionRequest, DecisionResult, ticket_decided
from app.commands.tickets.evaluate import DecisionAttempt, evaluate_decisions
from app.commands.tickets.rejections import note_rejection
from app.context import ServiceContext
from app.domain.errors import Refusal
from app.domain.events.command_events import TicketDecided, TicketVoted
from app.domain.ids import RunId
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.events.transaction import Transaction
from app.queries.records import run_not_found
from app.storage.children import child_runs
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from app.storage.tickets import decisions, rules, tickets


@dataclass(frozen=True, slots=True)
class Decided:
    run: RunRecord
    results: tuple[DecisionResult, ...]
    open_tickets: tuple[Ticket, ...]
    to_resume: RunKey | None = None
    """The run, when it can go on and no delivery says so."""


async def decide(
    ctx: ServiceContext,
    principal: Principal,
    run_id: RunId,
    requests: Sequence[DecisionRequest],
    *,
    deliver: bool = True,
    once: IdempotentCommand[Decided] | None = None,
) -> Decided:
    """Record the answers, or refuse the whole batch and change nothing.

    Who has room for the run itself needs no delivery; should it fail to resume it, the sweeper will.
    """
    principal.require(Scope.DECISIONS_WRITE)
    to_resume, attempted = None, DecisionAttempt()
    try:
        async with ctx.events.transaction() as transaction:
            connection = transaction.connection
            await begin_once(connection, principal, once)
            record = await runs.lock(connection, principal.tenant, run_id)
            if record is None:
                raise run_not_found(run_id)
            all_tickets = await tickets.of_run(connection, principal.tenant, run_id)
            judged = await apply_decisions(
                ctx, principal, transaction, record, all_tickets, requests, attempted
            )
            fresh = [result for result in judged if not result.is_duplicate]
            counted = {result.ticket.id for result in judged if result.counts}
            still_open = tuple(
                ticket
                for ticket in all_tickets
                if ticket.status is TicketStatus.OPEN and ticket.id not in counted
            )
            if (
                any(result.counts for result in fresh)
                and record.status is RunStatus.WAITING
                and not record.is_paused
                and not any(ticket.kind is TicketKind.LIMIT for ticket in still_open)
            ):
                to_resume = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
                if deliver:
                    await deliveries.enqueue(connection, to_resume)
            decided = Decided(record, tuple(judged), still_open, None if deliver else to_resume)
            await keep_answer(connection, principal, once, decided)
    except Refusal as refusal:
        await note_rejection(ctx, principal, attempted, refusal)
        raise
    return decided


async def apply_decisions(
    ctx: ServiceContext,
    principal: Principal,
    transaction: Transaction,
    record: RunRecord,
    all_tickets: Sequence[Ticket],
    requests: Sequence[DecisionRequest],
    attempted: DecisionAttempt | None = None,
) -> list[DecisionResult]:
    """Judge and write answers to tickets of a run that the caller has locked, and will wake."""
    judged = await evaluate_decisions(
        ctx, transaction, principal, record, all_tickets, requests, attempted or DecisionAttempt()
    )
    for result in judged:
        if not result.is_duplicate:
            await _write(transaction, principal, record, result)
    return judged


async def _write(
    transaction: Transaction, principal: Principal, record: RunRecord, result: DecisionResult
) -> None:
    decision, ticket = result.decision, result.ticket
    telemetry.decisions.labels(decision.answer.action.value).inc()
    event: TicketDecided | TicketVoted
    if result.counts:
        await decisions.decide(transaction.connection, principal.tenant, ticket.id, decision)
        if ticket.kind is TicketKind.CHILD:
            await child_runs.cancel_of(transaction.connection, principal.tenant, ticket)
        if result.rule is not None:
            await rules.add(transaction.connection, principal.tenant, result.rule)
        event = ticket_decided(ticket, decision)
    else:
        await decisions.vote(transaction.connection, principal.tenant, ticket.id, decision)
        event = TicketVoted(
            id=ticket.id,
            ticket_id=ticket.name,
            decision_id=decision.decision_id,
            action=decision.answer.action.value,
            decided_by=decision.subject,
            reason=decision.answer.reason,
            votes_missing=result.votes_missing,
        )
    transaction.emit(record.tenant, record.thread_id, record.id, event)
