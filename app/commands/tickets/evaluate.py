"""Evaluates a requested decision: it decides, is a vote, repeats an earlier one, or is refused.

Nothing is written here. The caller holds the run's lock, so the run's tickets can't change meanwhile, or checks
afterwards that they haven't changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.clock import new_id
from app.commands.tickets.decision_types import DecisionRequest, DecisionResult
from app.commands.tickets.validate import check_decision
from app.context import ServiceContext
from app.domain.errors import Conflict, Gone, Invalid, NotFound, Refusal
from app.domain.ids import RuleId, TicketKey
from app.domain.principals import Principal
from app.domain.rules.remembered import BEHAVIORS, Remember, RememberedRule, rule_of_answer
from app.domain.runs.runs import RunRecord
from app.domain.tickets.decisions import (
    Action,
    Decision,
    DecisionAnswer,
    DecisionEffect,
    decision_to_json,
    derived_decision_id,
)
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.storage.postgres.database import Connection
from app.storage.tickets import decisions


@dataclass(slots=True)
class DecisionAttempt:
    """The ticket and the request that are being evaluated, for the record of a refusal."""

    ticket: Ticket | None = None
    request: DecisionRequest | None = None


async def evaluate_decisions(
    ctx: ServiceContext,
    connection: Connection,
    at: datetime,
    principal: Principal,
    record: RunRecord,
    all_tickets: Sequence[Ticket],
    requests: Sequence[DecisionRequest],
    attempted: DecisionAttempt,
) -> list[DecisionResult]:
    chosen = [find_ticket(all_tickets, request.ticket) for request in requests]
    keys = [ticket.id for ticket in chosen]
    if len(set(keys)) < len(chosen):
        raise Invalid(
            "ticket_repeated", "A batch may answer each ticket once. Remove the repetition."
        )
    before = await _earlier_decisions(connection, principal, chosen)
    results = []
    for ticket, request in zip(chosen, requests, strict=True):
        attempted.ticket, attempted.request = ticket, request
        given = before[ticket.id]
        results.append(
            await _evaluate(ctx, connection, at, principal, record, ticket, given, request)
        )
    return results


async def _earlier_decisions(
    connection: Connection, principal: Principal, chosen: Sequence[Ticket]
) -> dict[TicketKey, list[Decision]]:
    """Votes and decisions so far, by ticket. Only a ticket with an approver rule can have votes."""
    given = {each.id: [] if each.decision is None else [each.decision] for each in chosen}
    voted_on = [each.id for each in chosen if each.terms.approvers is not None]
    if not voted_on:
        return given
    given |= {key: [] for key in voted_on}
    for attempt in await decisions.attempts(connection, principal.tenant, voted_on):
        if attempt.effect is not DecisionEffect.REFUSED:
            given[attempt.ticket].append(attempt.decision)
    return given


def find_ticket(all_tickets: Sequence[Ticket], wanted: str) -> Ticket:
    """The ticket with this id; else the open ticket of the call with this id, or its newest one."""
    found = [ticket for ticket in all_tickets if wanted == ticket.id]
    found = found or [ticket for ticket in all_tickets if wanted == ticket.call_id]
    if not found:
        raise NotFound(
            "ticket_not_found",
            f"Neither this run nor a run below it has a ticket {wanted!r}. GET /v1/tickets lists them, each "
            "with its run_id.",
        )
    open_ones = [ticket for ticket in found if ticket.status is TicketStatus.OPEN]
    return (open_ones or found)[-1]


async def _evaluate(
    ctx: ServiceContext,
    connection: Connection,
    at: datetime,
    principal: Principal,
    record: RunRecord,
    ticket: Ticket,
    given: Sequence[Decision],
    request: DecisionRequest,
) -> DecisionResult:
    """Evaluate one answer. `given` are the ticket's votes and its decision, if any."""
    answer = request.answer
    decision_id = request.decision_id or derived_decision_id(ticket.id, answer, principal.subject)
    repeated = _repeated(ticket, given, decision_id, answer, principal)
    if repeated is not None:
        return DecisionResult(
            ticket, repeated, True, _votes_missing(ticket, given, repeated.answer)
        )
    if ticket.status is not TicketStatus.OPEN:
        raise _too_late(ticket)
    await check_decision(ctx, connection, principal, record, ticket, given, request)
    decision = Decision(decision_id=decision_id, answer=answer, subject=principal.subject, at=at)
    missing = _votes_missing(ticket, [*given, decision], answer)
    rule = _remembered(ticket, decision, request.remember)
    return DecisionResult(ticket, decision, votes_missing=missing, rule=rule)


def _remembered(
    ticket: Ticket, decision: Decision, remember: Remember | None
) -> RememberedRule | None:
    """The rule to remember. An approval of a ticket with an approver rule can't be remembered."""
    action = decision.answer.action
    if remember is None:
        return None
    is_of_call = ticket.kind is TicketKind.APPROVAL and not ticket.is_question_of_tool
    if not is_of_call or action not in BEHAVIORS:
        raise Invalid(
            "remember_not_allowed",
            f"Only an approval or a rejection of a call can be remembered, not this answer to "
            f"{ticket.name!r}.",
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
    answer: DecisionAnswer,
    principal: Principal,
) -> Decision | None:
    """The first answer of a repetition, also if the ticket has changed since."""
    for decision in given:
        if decision.decision_id != decision_id:
            continue
        if decision.subject == principal.subject and decision.answer.agrees_with(answer):
            return decision
        if ticket.status is TicketStatus.OPEN:
            raise Conflict(
                "decision_id_conflict",
                f"Another answer has the decision id {decision_id!r}. Use a new id.",
            )
    return None


def _votes_missing(ticket: Ticket, given: Sequence[Decision], answer: DecisionAnswer) -> int:
    """How many more people have to give this answer before it counts. Each person counts once."""
    rule = ticket.terms.approvers
    if rule is None or not answer.allows_call:
        return 0
    people = {each.subject for each in given if each.answer.agrees_with(answer)}
    return max(0, rule.quorum - len(people))


def _too_late(ticket: Ticket) -> Refusal:
    winner = ticket.decision
    if winner is not None:
        return Conflict(
            "ticket_already_decided",
            f"Ticket {ticket.name!r} was answered before: {winner.answer.action.value}.",
            ticket_id=ticket.id,
            winner=decision_to_json(winner),
        )
    if ticket.status is TicketStatus.EXPIRED:
        return Gone("ticket_expired", f"Ticket {ticket.name!r} has expired.")
    return Gone("ticket_void", f"Ticket {ticket.name!r} is void: it needs no answer any more.")
