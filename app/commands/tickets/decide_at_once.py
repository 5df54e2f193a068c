"""Decide tickets of a waiting run and claim the run, without a transaction that holds locks meanwhile.

This is the frequent decision: it takes effect, resumes its run, and this process has a free slot. Two statements
do it instead of seven. `decide` does everything else: votes, repetitions, refusals, remembered rules and children.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from app import telemetry
from app.commands.tickets.decide import Decided
from app.commands.tickets.decision_types import DecisionRequest, DecisionResult, ticket_decided
from app.commands.tickets.evaluate import DecisionAttempt, evaluate_decisions
from app.context import ServiceContext
from app.domain.checkpoints import PendingEvent
from app.domain.errors import Refusal
from app.domain.ids import RunId, Tenant, ThreadId, WorkerId
from app.domain.principals import Principal, Scope
from app.domain.structs import replace
from app.domain.tickets.decisions import Decision
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.events.sse_encoding import EventBatch
from app.storage.checkpoints.decide_and_claim import decide_and_claim, read_waiting
from app.storage.events.event_log import entry


class RunOwner(Protocol):
    """The worker that will execute the run."""

    @property
    def worker_id(self) -> WorkerId: ...

    def first_message_to_read(self, tenant: Tenant, thread_id: ThreadId) -> int:
        """The number of the message from which on the worker has to read a thread's log."""


async def decide_at_once(
    ctx: ServiceContext,
    principal: Principal,
    run_id: RunId,
    requests: Sequence[DecisionRequest],
    owner: RunOwner,
) -> Decided | None:
    """Record the answers and claim the run for `owner`, with what its execution needs. Returns None, with nothing
    changed, if `decide` has to do it."""
    principal.require(Scope.DECISIONS_WRITE)
    at = ctx.events.now()
    async with ctx.database.reading_by_key() as connection:
        read = await read_waiting(connection, principal.tenant, run_id)
        if read is None:
            return None
        record, unsettled = read
        try:
            results = await evaluate_decisions(
                *(ctx, connection, at, principal, record, unsettled, requests, DecisionAttempt())
            )
        except Refusal:
            return None
    if not results or not all(map(_is_simple, results)):
        return None
    answered = {result.ticket.id: result.decision for result in results}
    tickets = [_decided(ticket, answered.get(ticket.id), at) for ticket in unsettled]
    still_open = tuple(ticket for ticket in tickets if ticket.status is TicketStatus.OPEN)
    if any(ticket.kind is TicketKind.LIMIT for ticket in still_open):
        return None
    events = [
        entry(PendingEvent(ticket_decided(result.ticket, result.decision), None))
        for result in results
    ]
    written = await decide_and_claim(
        *(ctx.database.pool, record, [*answered.items()], events, owner.worker_id, at),
        tickets=tickets,
        from_seq=owner.first_message_to_read(record.tenant, record.thread_id),
    )
    if written is None:
        return None
    ctx.publisher.publish(
        EventBatch(record.tenant, record.thread_id, record.id, written.first_seq, events, at)
    )
    for result in results:
        telemetry.decisions.labels(result.decision.answer.action.value).inc()
    return Decided(record, tuple(results), still_open, claimed=written.claimed)


def _decided(ticket: Ticket, decision: Decision | None, at: datetime) -> Ticket:
    """The ticket as it is after its decision, if it gets one."""
    if decision is None:
        return ticket
    return replace(ticket, status=TicketStatus.DECIDED, decision=decision, updated_at=at)


def _is_simple(result: DecisionResult) -> bool:
    """Whether an answer takes effect, and changes nothing but its ticket and its run."""
    ticket = result.ticket
    return (
        not result.is_duplicate
        and ticket.kind is not TicketKind.CHILD
        and ticket.terms.approvers is None
        and result.rule is None
    )
