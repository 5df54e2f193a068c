"""Decide: answer tickets of a run, all of a batch or none.

A committed answer can't be lost. A waiting run gets a delivery in the same commit; an executing run reads
its tickets again before it suspends. Where several people have to approve, each approval is a vote until
the quorum is reached; one rejection is enough. Refused attempts are recorded, too.
"""

from collections.abc import Sequence

from msgspec import Struct

from app import telemetry
from app.commands.idempotency import IdempotentCommand, begin_idempotent, store_response
from app.commands.tickets.decision_types import DecisionRequest, DecisionResult, ticket_decided
from app.commands.tickets.evaluate import DecisionAttempt, evaluate_decisions
from app.commands.tickets.rejections import record_rejection
from app.context import ServiceContext
from app.domain.claims.claimed_run import ClaimedRun
from app.domain.errors import Invalid, Refusal
from app.domain.events.ticket_events import TicketDecided, TicketVoted
from app.domain.ids import RunId, Tenant, canonical_uuid
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.events.transaction import Transaction
from app.queries.records import found_run, locked_run
from app.storage.children import child_runs
from app.storage.postgres.database import Connection
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.claims import ClaimHere
from app.storage.runs.runs import RunKey
from app.storage.tickets import decisions, rules, tickets


class Decided(Struct, frozen=True):
    run: RunRecord
    results: tuple[DecisionResult, ...]
    open_tickets: tuple[Ticket, ...]
    to_claim: RunKey | None = None
    """The run, if it can resume, no delivery was enqueued and the transaction didn't claim it."""
    claimed: ClaimedRun | None = None
    """The run, if the transaction claimed it. The caller executes it."""


async def decide(
    ctx: ServiceContext,
    principal: Principal,
    run_id: RunId,
    requests: Sequence[DecisionRequest],
    *,
    deliver: bool = True,
    claim: ClaimHere | None = None,
    once: IdempotentCommand[Decided] | None = None,
) -> Decided:
    """Record the answers, or refuse the whole batch and change nothing.

    The tickets are those of the run, or those of one run below it. They are decided as at their own run: the
    transaction locks only that one.

    A caller with a free slot passes `claim`, with which the same commit claims the run, or `deliver=False` and
    claims it afterwards. If that fails, the sweeper enqueues it.
    """
    principal.require(Scope.DECISIONS_WRITE)
    to_claim, claimed, attempted = None, None, DecisionAttempt()
    try:
        async with ctx.events.transaction(by_key=True) as transaction:
            connection = transaction.connection
            await begin_idempotent(connection, principal, once)
            ids = [id for each in requests if (id := canonical_uuid(each.ticket)) is not None]
            record = await runs.lock_for_decision(connection, principal.tenant, run_id, ids)
            # The claim comes after the lock of the thread, and with a lost worker or a message it is no simple one.
            claims_here = record is not None and not record.losses and not record.unread_inputs
            if record is None:
                owner = await _owner_of_tickets(connection, principal.tenant, run_id, requests)
                record = await locked_run(connection, principal.tenant, owner)
            all_tickets = await tickets.of_run(connection, principal.tenant, record.id)
            results = await apply_decisions(
                ctx, principal, transaction, record, all_tickets, requests, attempted
            )
            fresh = [result for result in results if not result.is_duplicate]
            counted = {result.ticket.id for result in results if result.counts}
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
                key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
                if claim is not None and claims_here:
                    claimed = await claim(connection, key)
                elif not deliver:
                    to_claim = key
                if claimed is None and to_claim is None:
                    await deliveries.enqueue(connection, key)
            decided = Decided(record, tuple(results), still_open, to_claim, claimed)
            await store_response(connection, principal, once, decided)
    except Refusal as refusal:
        await record_rejection(ctx, principal, attempted, refusal)
        raise
    return decided


async def _owner_of_tickets(
    connection: Connection, tenant: Tenant, run_id: RunId, requests: Sequence[DecisionRequest]
) -> RunId:
    """The run whose tickets these are: the named run, or one below it. A ticket never changes its run."""
    owners = await tickets.runs_of(connection, tenant, [request.ticket for request in requests])
    if set(owners.values()) <= {run_id}:
        return run_id
    await found_run(connection, tenant, run_id)
    below = {
        owner
        for owner in set(owners.values()) - {run_id}
        if await child_runs.is_below(connection, tenant, owner, run_id)
    }
    if not below:
        return run_id
    if len(below) > 1 or run_id in owners.values() or len(owners) < len(requests):
        raise Invalid(
            "tickets_of_several_runs",
            "A batch decides tickets of one run. Send one request for the tickets of each run_id.",
        )
    return below.pop()


async def apply_decisions(
    ctx: ServiceContext,
    principal: Principal,
    transaction: Transaction,
    record: RunRecord,
    all_tickets: Sequence[Ticket],
    requests: Sequence[DecisionRequest],
    attempted: DecisionAttempt | None = None,
) -> list[DecisionResult]:
    """Evaluate and write answers to tickets of a run. The caller has locked the run, and resumes it."""
    results = await evaluate_decisions(
        ctx,
        transaction.connection,
        transaction.now,
        principal,
        record,
        all_tickets,
        requests,
        attempted or DecisionAttempt(),
    )
    for result in results:
        if not result.is_duplicate:
            await _write(transaction, principal, record, result)
    parent = record.lineage.parent_run_id
    if parent is not None and any(each.counts and not each.is_duplicate for each in results):
        await child_runs.show_tickets(transaction.connection, record.tenant, parent, record.id)
    return results


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
            ticket_id=ticket.id,
            decision_id=decision.decision_id,
            action=decision.answer.action.value,
            decided_by=decision.subject,
            reason=decision.answer.reason,
            votes_missing=result.votes_missing,
        )
    transaction.emit(record.tenant, record.thread_id, record.id, event)
