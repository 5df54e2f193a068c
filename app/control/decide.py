"""Decide: answer tickets of a run, all of a batch or none.

Once this has committed the answers can't be lost. A waiting run gets a delivery in the same commit; one
that executes re-reads its tickets before it comes to rest. An answer that several people have to give is
a vote until enough of them have; one person is enough to say no. What was refused is noted, too: who
tried to let which call pass belongs to the call's history.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app import telemetry
from app.clock import new_id
from app.control.desk import Desk
from app.control.once import Once, begin, settle
from app.control.reading import run_not_found
from app.domain.decisions import Action, Answer, Decision, DecisionEffect, derived_decision_id
from app.domain.errors import (
    Conflict,
    DigestMismatch,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Refusal,
)
from app.domain.events import TicketDecided, TicketVoted
from app.domain.ids import RuleId, RunId
from app.domain.json_values import digest
from app.domain.principals import Principal, Scope
from app.domain.remembered_rules import (
    BEHAVIORS,
    Remember,
    RememberedRule,
    rule_of_answer,
)
from app.domain.runs import RunRecord, RunStatus
from app.domain.tickets import Ticket, TicketKind, TicketStatus
from app.events.outgoing import Transaction
from app.runtime.agent import Unresolvable
from app.runtime.handoff import agent_at_work
from app.storage import children, deliveries, rules, runs, threads, tickets
from app.storage.database import Connection
from app.storage.runs import RunKey
from app.tools.frontend import with_frontend_tools
from app.tools.schemas import build_validator

REFUSED_ID = "refused:"
"""What the ids of refused attempts begin with, and no other decision's does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRequest:
    """One answer of a batch. `ticket` is a ticket's name in the run, its own id, or its call's id."""

    ticket: str
    answer: Answer
    decision_id: str | None
    args_digest: str | None
    remember: Remember | None = None


@dataclass(frozen=True, slots=True)
class DecisionResult:
    ticket: Ticket
    decision: Decision
    is_duplicate: bool = False
    votes_missing: int = 0
    """People who have to give the same answer before it counts."""
    rule: RememberedRule | None = None
    """What the answer means for calls to come."""

    @property
    def counts(self) -> bool:
        return self.votes_missing == 0


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
    to_resume, attempted = None, _Attempted()
    try:
        async with desk.outgoing.transaction() as transaction:
            connection = transaction.connection
            await begin(connection, principal, once)
            record = await runs.lock(connection, principal.tenant, run_id)
            if record is None:
                raise run_not_found(run_id)
            all_tickets = await tickets.of_run(connection, principal.tenant, run_id)
            judged = await _judge_all(
                desk, transaction, principal, record, all_tickets, requests, attempted
            )
            fresh = [result for result in judged if not result.is_duplicate]
            for result in fresh:
                await _write(transaction, principal, record, result)
            if any(result.counts for result in fresh) and record.status is RunStatus.WAITING:
                to_resume = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
                if deliver:
                    await deliveries.enqueue(connection, to_resume)
            answered = {result.ticket.key for result in judged if result.counts}
            still_open = tuple(
                ticket
                for ticket in all_tickets
                if ticket.status is TicketStatus.OPEN and ticket.key not in answered
            )
            decided = Decided(record, tuple(judged), still_open, None if deliver else to_resume)
            await settle(connection, principal, once, decided)
    except Refusal as refusal:
        await _note(desk, principal, attempted, refusal)
        raise
    return decided


@dataclass(slots=True)
class _Attempted:
    """What is being judged, so that it is known what was refused."""

    ticket: Ticket | None = None
    request: DecisionRequest | None = None


async def _judge_all(
    desk: Desk,
    transaction: Transaction,
    principal: Principal,
    record: RunRecord,
    all_tickets: Sequence[Ticket],
    requests: Sequence[DecisionRequest],
    attempted: _Attempted,
) -> list[DecisionResult]:
    chosen = [find_ticket(all_tickets, request.ticket) for request in requests]
    keys = [ticket.key for ticket in chosen]
    if len(set(keys)) < len(chosen):
        raise Invalid(
            "ticket_repeated", "A batch may answer each ticket once. Remove the repetition."
        )
    before = await tickets.attempts(transaction.connection, principal.tenant, keys)
    judged = []
    for ticket, request in zip(chosen, requests, strict=True):
        attempted.ticket, attempted.request = ticket, request
        given = [
            attempt.decision
            for attempt in before
            if attempt.ticket == ticket.key and attempt.effect is not DecisionEffect.REFUSED
        ]
        judged.append(await _judge(desk, transaction, principal, record, ticket, given, request))
    return judged


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
    given: Sequence[Decision],
    request: DecisionRequest,
) -> DecisionResult:
    """What an answer comes to. `given` are the ticket's votes and its winner, as far as there are any."""
    answer = request.answer
    decision_id = request.decision_id or derived_decision_id(ticket.key, answer, principal.subject)
    repeated = _repeated(ticket, given, decision_id, answer, principal)
    if repeated is not None:
        return DecisionResult(ticket, repeated, True, _missing(ticket, given, repeated.answer))
    if ticket.status is not TicketStatus.OPEN:
        raise _too_late(ticket)
    await _check(desk, transaction.connection, principal, record, ticket, given, request)
    decision = Decision(
        decision_id=decision_id, answer=answer, subject=principal.subject, at=transaction.now
    )
    missing = _missing(ticket, [*given, decision], answer)
    rule = _remembered(ticket, decision, request.remember)
    return DecisionResult(ticket, decision, votes_missing=missing, rule=rule)


def _remembered(
    ticket: Ticket, decision: Decision, remember: Remember | None
) -> RememberedRule | None:
    """A call that is let pass by people who were chosen for it can't let others pass by itself."""
    action = decision.answer.action
    if remember is None:
        return None
    if ticket.kind is not TicketKind.APPROVAL or action not in BEHAVIORS:
        raise Invalid(
            "remember_not_allowed",
            f"Only approving or rejecting a call can be remembered, not this answer to "
            f"{ticket.ticket_id!r}.",
        )
    if action is Action.APPROVE and ticket.terms.approvers is not None:
        raise Invalid(
            "remember_not_allowed",
            f"Each call of {ticket.tool_name!r} needs its own approval, by the agent's rules.",
        )
    return rule_of_answer(
        ticket,
        action,
        remember,
        id=RuleId(new_id()),
        by=decision.subject,
        at=decision.at,
        reason=decision.answer.reason,
    )


def _repeated(
    ticket: Ticket,
    given: Sequence[Decision],
    decision_id: str,
    answer: Answer,
    principal: Principal,
) -> Decision | None:
    """A repetition gets its first answer again, whatever has happened since."""
    for decision in given:
        if decision.decision_id != decision_id:
            continue
        if decision.subject == principal.subject and decision.answer.agrees_with(answer):
            return decision
        if ticket.status is TicketStatus.OPEN:
            raise Conflict(
                "decision_id_conflict",
                f"Another answer was given under the id {decision_id!r}. Use a new one.",
            )
    return None


def _missing(ticket: Ticket, given: Sequence[Decision], answer: Answer) -> int:
    """People who have to give this answer yet before it counts; each is counted once."""
    rule = ticket.terms.approvers
    if rule is None or not answer.lets_pass:
        return 0
    people = {each.subject for each in given if each.answer.agrees_with(answer)}
    return max(0, rule.quorum - len(people))


def _too_late(ticket: Ticket) -> Refusal:
    winner = ticket.decision
    if winner is not None:
        return Conflict(
            "ticket_already_decided",
            f"Ticket {ticket.ticket_id!r} was answered before: {winner.answer.action.value}.",
            ticket_id=ticket.ticket_id,
            winner=_shown(winner),
        )
    if ticket.status is TicketStatus.EXPIRED:
        return Gone("ticket_expired", f"Ticket {ticket.ticket_id!r} has expired.")
    return Gone("ticket_void", f"Ticket {ticket.ticket_id!r} is void: its run is done.")


def _shown(decision: Decision) -> dict[str, Any]:
    return {
        "decision_id": decision.decision_id,
        "action": decision.answer.action.value,
        "decided_by": decision.subject,
        "decided_at": decision.at,
    }


async def _check(
    desk: Desk,
    connection: Connection,
    principal: Principal,
    record: RunRecord,
    ticket: Ticket,
    given: Sequence[Decision],
    request: DecisionRequest,
) -> None:
    """Whether this answer may be given to this ticket, by this person."""
    answer = request.answer
    _check_approver(principal, record, ticket, given, answer)
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


def _check_approver(
    principal: Principal,
    record: RunRecord,
    ticket: Ticket,
    given: Sequence[Decision],
    answer: Answer,
) -> None:
    rule = ticket.terms.approvers
    if rule is None:
        return
    broken = rule.broken_by(
        principal.scopes,
        is_admin=principal.is_admin,
        is_starter=record.started_by == principal.subject,
    )
    if broken is not None:
        name, sentence = broken
        raise Forbidden(
            "approver_not_allowed",
            f"Ticket {ticket.ticket_id!r} isn't yours to answer: {sentence}.",
            ticket_id=ticket.ticket_id,
            rule=name,
        )
    own = next((vote for vote in given if vote.subject == principal.subject), None)
    if own is not None and answer.lets_pass:
        raise Conflict(
            "already_voted",
            f"You have voted on ticket {ticket.ticket_id!r} before: {own.answer.action.value}. You can "
            "still reject it.",
            ticket_id=ticket.ticket_id,
            vote=_shown(own),
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
    decision, ticket = result.decision, result.ticket
    telemetry.decisions.labels(decision.answer.action.value).inc()
    event: TicketDecided | TicketVoted
    if result.counts:
        await tickets.decide(transaction.connection, principal.tenant, ticket.key, decision)
        if ticket.kind is TicketKind.CHILD:
            await children.cancel_of(transaction.connection, principal.tenant, ticket)
        if result.rule is not None:
            await rules.add(transaction.connection, principal.tenant, result.rule)
        event = TicketDecided(
            id=ticket.key,
            ticket_id=ticket.ticket_id,
            decision_id=decision.decision_id,
            action=decision.answer.action.value,
            decided_by=decision.subject,
            reason=decision.answer.reason,
        )
    else:
        await tickets.vote(transaction.connection, principal.tenant, ticket.key, decision)
        event = TicketVoted(
            id=ticket.key,
            ticket_id=ticket.ticket_id,
            decision_id=decision.decision_id,
            action=decision.answer.action.value,
            decided_by=decision.subject,
            reason=decision.answer.reason,
            votes_missing=result.votes_missing,
        )
    transaction.say(record.tenant, record.thread_id, record.id, event)


_NOTED = (Forbidden, Conflict, Gone, DigestMismatch)
"""Refusals that say something about who tried what; a misspelt request isn't among them."""


async def _note(desk: Desk, principal: Principal, attempted: _Attempted, refusal: Refusal) -> None:
    """Keep what was refused, apart from the transaction that has changed nothing."""
    ticket, request = attempted.ticket, attempted.request
    if ticket is None or request is None or not isinstance(refusal, _NOTED):
        return
    answer = request.answer
    name = digest([principal.subject, refusal.code, answer.action.value])
    decision = Decision(
        decision_id=f"{REFUSED_ID}{name}",
        answer=answer,
        subject=principal.subject,
        at=desk.clock.now(),
    )
    async with desk.database.transaction() as connection:
        await tickets.note_refusal(connection, principal.tenant, ticket.key, decision, refusal.code)
