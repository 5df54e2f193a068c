"""Limit tickets: whether a run that has used what its caller allowed may use more.

    approve            go on, with the limit raised as the ticket proposes: by its own size
    edit or respond    go on, with {"raise_by": N}
    reject, cancel     the run ends; so it does when nobody answers in time

Such a ticket is about the whole run: while it is open nothing of the run goes on, whatever else is
answered meanwhile.
"""

from collections.abc import Collection
from datetime import datetime
from math import floor
from typing import Any

from app.domain.ids import AgentId, TicketKey
from app.domain.json_values import Json, JsonObject, as_object
from app.domain.runs.limits import Amount, Limit, RunLimits, Used, limit_sentence
from app.domain.runs.runs import RunRecord
from app.domain.tickets.decisions import Action
from app.domain.tickets.terms import TicketTerms
from app.domain.tickets.tickets import (
    Ticket,
    TicketKind,
    TicketStatus,
    allowed_actions,
    arguments_digest,
    free_name,
)
from app.domain.tools.tool_calls import ResumeMode

LIMIT_TOOL_NAME = "run:limit"
"""What stands in place of a tool's name: no tool is called so."""
RAISE_BY = "raise_by"
MAX_AMOUNT = 10**12


def limit_ticket(
    record: RunRecord,
    limit: Limit,
    limits: RunLimits,
    used: Used,
    *,
    key: TicketKey,
    agent_id: AgentId,
    step_index: int,
    taken: Collection[str],
    terms: TicketTerms,
    at: datetime,
) -> Ticket:
    """The question whether a run may use more of something."""
    allowed, so_far = limits.of(limit) or 0, used.of(limit)
    arguments = {
        "limit": limit.value,
        "allowed": allowed,
        "used": _shown(so_far),
        RAISE_BY: proposed_raise(limits.asked.get(limit, 1), allowed, so_far),
    }
    mode = ResumeMode.PASS_DECISION_TO_TOOL
    return Ticket(
        id=key,
        run_id=record.id,
        thread_id=record.thread_id,
        agent_id=agent_id,
        name=free_name(f"limit_{limit.value}", taken),
        kind=TicketKind.LIMIT,
        call_id=None,
        step_index=step_index,
        tool_name=LIMIT_TOOL_NAME,
        arguments=arguments,
        args_digest=arguments_digest(LIMIT_TOOL_NAME, arguments),
        resume_mode=mode,
        allowed_actions=allowed_actions(TicketKind.LIMIT, mode),
        response_schema=_schema(limit),
        reason=LIMIT_TOOL_NAME,
        message=f"The run may go no further: {limit_sentence(limit, so_far, allowed)}",
        status=TicketStatus.OPEN,
        created_at=at,
        updated_at=at,
        evidence={name.value: _shown(used.of(name)) for name in Limit},
        terms=terms,
    )


def limit_of(ticket: Ticket) -> Limit:
    return Limit((as_object(ticket.arguments) or {})["limit"])


def raise_granted(ticket: Ticket) -> Amount | None:
    """By how much the limit is raised; None when it isn't."""
    if ticket.decision is None:
        return None
    answer = ticket.decision.answer
    match answer.action:
        case Action.APPROVE:
            return _amount(ticket.arguments)
        case Action.EDIT:
            return _amount(dict(answer.arguments or {}))
        case Action.RESPOND:
            return _amount(answer.result)
        case _:
            return None


def reason_not_raised(ticket: Ticket) -> str:
    """What the end of the run says about the answer that it got."""
    if ticket.decision is None:
        return ", and nobody answered in time"
    reason = ticket.decision.answer.reason
    return ", and no more was granted" + (f": {reason}" if reason else "")


def _amount(given: Json) -> Amount:
    amount: Amount = (as_object(given) or {})[RAISE_BY]
    return amount


def proposed_raise(own_size: Amount, allowed: Amount, used: Amount) -> Amount:
    """The size that was asked for, as many times as it takes to leave room."""
    return own_size * max(1, floor((used - allowed) / own_size) + 1)


def _schema(limit: Limit) -> JsonObject:
    amount: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": MAX_AMOUNT}
    if limit is Limit.WALL_SECONDS:
        amount = {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_AMOUNT}
    return {
        "type": "object",
        "properties": {RAISE_BY: amount},
        "required": [RAISE_BY],
        "additionalProperties": False,
    }


def _shown(amount: Amount) -> Amount:
    return round(amount, 3) if isinstance(amount, float) else amount
