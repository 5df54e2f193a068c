"""Decide: answer tickets of a run, all of a batch or none.

Once this has committed the answers can't be lost. A waiting run gets a delivery in the same commit; one
that executes re-reads its tickets before it comes to rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app import telemetry
from app.control.desk import Desk
from app.control.once import Once, begin, settle
from app.control.reading import run_not_found
from app.domain.decisions import Action, Answer, Decision, derived_decision_id
from app.domain.errors import Conflict, DigestMismatch, Gone, Invalid, NotFound
from app.domain.events import TicketDecided
from app.domain.ids import RunId
from app.domain.principals import Principal, Scope
from app.domain.runs import RunRecord, RunStatus
from app.domain.tickets import Ticket, TicketStatus
from app.events.outgoing import Transaction
from app.runtime.agent import Unresolvable
from app.runtime.handoff import agent_at_work
from app.storage import deliveries, runs, threads, tickets
from app.storage.database import Connection
from app.storage.runs import RunKey
from app.tools.frontend import with_frontend_tools
from app.tools.schemas import build_validator


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRequest:
    """One answer of a batch. `ticket` is a ticket's name in the run, its own id, or its call's id."""

    ticket: str
    answer: Answer
    decision_id: str | None
    args_digest: str | None


@dataclass(frozen=True, slots=True)
class DecisionResult:
    ticket: Ticket
    decision: Decision
    is_duplicate: bool


@dataclass(frozen=True, slots=True)
class Decided:
    run: RunRecord
    results: tuple[DecisionResult, ...]
    open_tickets: tuple[Ticket, ...]
    to_resume: RunKey | None = None
    """The run, when it can go on and no delivery says so."""


async def decide(
    desk: Desk,
    principal: Principal,
    run_id: RunId,
    requests: Sequence[DecisionRequest],
    *,
    deliver: bool = True,
    once: Once[Decided] | None = None,
) -> Decided:
    """Record the answers, or refuse the whole batch and change nothing.

    Who has room for the run itself needs no delivery; should it fail to resume it, the sweeper will.
    """
    principal.require(Scope.DECISIONS_WRITE)
    to_resume = None
    async with desk.outgoing.transaction() as transaction:
        connection = transaction.connection
        await begin(connection, principal, once)
        record = await runs.lock(connection, principal.tenant, run_id)
        if record is None:
            raise run_not_found(run_id)
        all_tickets = await tickets.of_run(connection, principal.tenant, run_id)
        chosen = [find_ticket(all_tickets, request.ticket) for request in requests]
        if len({ticket.key for ticket in chosen}) < len(chosen):
            raise Invalid(
                "ticket_repeated", "A batch may answer each ticket once. Remove the repetition."
            )
        judged = [
            await _judge(desk, transaction, principal, record, ticket, request)
            for ticket, request in zip(chosen, requests, strict=True)
        ]
        fresh = [result for result in judged if not result.is_duplicate]
        for result in fresh:
            await _write(transaction, principal, record, result)
        if fresh and record.status is RunStatus.WAITING:
            to_resume = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
            if deliver:
                await deliveries.enqueue(connection, to_resume)
        answered = {result.ticket.key for result in judged}
        still_open = tuple(
            ticket
            for ticket in all_tickets
            if ticket.status is TicketStatus.OPEN and ticket.key not in answered
        )
        decided = Decided(record, tuple(judged), still_open, None if deliver else to_resume)
        await settle(connection, principal, once, decided)
    return decided


def find_ticket(all_tickets: Sequence[Ticket], name: str) -> Ticket:
    """The open ticket of that name, else the newest one that had it.

    A call's id means its open ticket, but a ticket that is called so comes first: who answers it again
    must not answer what the call has asked since.
    """
    named = [ticket for ticket in all_tickets if name in (ticket.ticket_id, ticket.key)]
    named = named or [ticket for ticket in all_tickets if name == ticket.call_id]
    if not named:
        raise NotFound("ticket_not_found", f"This run has no ticket {name!r}.")
    open_ones = [ticket for ticket in named if ticket.status is TicketStatus.OPEN]
    return (open_ones or named)[-1]


async def _judge(
    desk: Desk,
    transaction: Transaction,
    principal: Principal,
    record: RunRecord,
    ticket: Ticket,
    request: DecisionRequest,
) -> DecisionResult:
    answer = request.answer
    decision_id = request.decision_id or derived_decision_id(ticket.key, answer, principal.subject)
    if ticket.status is not TicketStatus.OPEN:
        return DecisionResult(ticket, _same_as_before(ticket, decision_id, answer), True)
    await _check(desk, transaction.connection, record, ticket, request)
    decision = Decision(
        decision_id=decision_id, answer=answer, subject=principal.subject, at=transaction.now
    )
    return DecisionResult(ticket, decision, False)


def _same_as_before(ticket: Ticket, decision_id: str, answer: Answer) -> Decision:
    """A repetition gets the first answer again; anything else comes too late."""
    winner = ticket.decision
    if winner is not None:
        same = (answer.action, answer.payload) == (winner.answer.action, winner.answer.payload)
        if winner.decision_id == decision_id and same:
            return winner
        raise Conflict(
            "ticket_already_decided",
            f"Ticket {ticket.ticket_id!r} was answered before: {winner.answer.action.value}.",
            ticket_id=ticket.ticket_id,
            winner={
                "decision_id": winner.decision_id,
                "action": winner.answer.action.value,
                "decided_by": winner.subject,
                "decided_at": winner.at,
            },
        )
    if ticket.status is TicketStatus.EXPIRED:
        raise Gone("ticket_expired", f"Ticket {ticket.ticket_id!r} has expired.")
    raise Gone("ticket_void", f"Ticket {ticket.ticket_id!r} is void: its run is done.")


async def _check(
    desk: Desk,
    connection: Connection,
    record: RunRecord,
    ticket: Ticket,
    request: DecisionRequest,
) -> None:
    """Whether this answer may be given to this ticket."""
    answer = request.answer
    if request.args_digest is not None and request.args_digest != ticket.args_digest:
        raise DigestMismatch(
            "args_digest_mismatch",
            "The ticket is about other arguments than the decision quotes. Read the ticket again.",
            args_digest=ticket.args_digest,
        )
    if answer.action not in ticket.allowed_actions:
        allowed = ", ".join(sorted(ticket.allowed_actions))
        raise Invalid(
            "action_not_allowed",
            f"Ticket {ticket.ticket_id!r} can't be answered with {answer.action.value!r}; "
            f"allowed are: {allowed}.",
            allowed_actions=sorted(ticket.allowed_actions),
        )
    if answer.action is Action.EDIT:
        await _check_arguments(desk, connection, record, ticket, answer)
    if answer.action is Action.RESPOND and ticket.response_schema is not None:
        wrong = build_validator(ticket.response_schema).problem(answer.result)
        if wrong is not None:
            raise Invalid(
                "response_schema_violation", f"The result isn't what was asked for: {wrong}"
            )


async def _check_arguments(
    desk: Desk, connection: Connection, record: RunRecord, ticket: Ticket, answer: Answer
) -> None:
    """By the tools of the agent that asked: the run may have been handed to another one."""
    remembered = await threads.state(connection, record.tenant, record.thread_id)
    at_work = agent_at_work(remembered) or (record.agent_id, record.agent_version)
    agents = with_frontend_tools(desk.roster.of(record.tenant), record.request)
    agent = await agents.at_version(*at_work)
    if isinstance(agent, Unresolvable):
        raise Conflict(
            "agent_version_unavailable", f"{agent.reason}; only its own version can go on."
        )
    tool = agent.tools.get(ticket.tool_name)
    wrong = (
        f"there is no tool {ticket.tool_name!r} any more"
        if tool is None
        else tool.invalid_arguments(dict(answer.arguments or {}))
    )
    if wrong is not None:
        raise Invalid("arguments_invalid", f"The edited arguments can't be used: {wrong}")


async def _write(
    transaction: Transaction, principal: Principal, record: RunRecord, result: DecisionResult
) -> None:
    decision = result.decision
    await tickets.decide(transaction.connection, principal.tenant, result.ticket.key, decision)
    telemetry.decisions.labels(decision.answer.action.value).inc()
    transaction.say(
        record.tenant,
        record.thread_id,
        record.id,
        TicketDecided(
            id=result.ticket.key,
            ticket_id=result.ticket.ticket_id,
            decision_id=decision.decision_id,
            action=decision.answer.action.value,
            decided_by=decision.subject,
            reason=decision.answer.reason,
        ),
    )
