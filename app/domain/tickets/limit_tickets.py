"""Limit tickets: ask whether a run that has reached a limit may use more.

    approve            continue, with the limit raised as the ticket proposes: by its own size
    edit or respond    continue, with the limit raised by {"raise_by": N}
    reject, cancel     the run ends, as it does when the ticket expires

The ticket is about the whole run: while it is open the run doesn't execute, even if other tickets are
decided meanwhile.
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
from app.domain.tickets.opening import allowed_actions, arguments_digest, free_name
from app.domain.tickets.terms import TicketTerms
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.domain.tools.tool_calls import ResumeMode

LIMIT_TOOL_NAME = "run:limit"
"""The tool name of limit tickets; no tool has it."""
RAISE_BY = "raise_by"
MAX_AMOUNT = 10**12


def limit_ticket(
    record: RunRecord,
    limit: Limit,
    limits: RunLimits,
    used: Used,
    *,
    id: TicketKey,
    agent_id: AgentId,
    step_index: int,
    used_names: Collection[str],
    terms: TicketTerms,
    at: datetime,
) -> Ticket:
    """The ticket about one limit of a run."""
    allowed, used_amount = limits.of(limit) or 0, used.of(limit)
    arguments = {
        "limit": limit.value,
        "allowed": allowed,
        "used": _shown(limit, used_amount),
        RAISE_BY: proposed_raise(limits.requested.get(limit, 1), allowed, used_amount),
    }
    mode = ResumeMode.PASS_DECISION_TO_TOOL
    return Ticket(
        id=id,
        run_id=record.id,
        thread_id=record.thread_id,
        agent_id=agent_id,
        name=free_name(f"limit_{limit.value}", used_names),
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
        message=f"The run may go no further: {limit_sentence(limit, used_amount, allowed)}",
        status=TicketStatus.OPEN,
        created_at=at,
        updated_at=at,
        evidence={name.value: _shown(name, used.of(name)) for name in Limit},
        terms=terms,
    )


def limit_of(ticket: Ticket) -> Limit:
    return Limit((as_object(ticket.arguments) or {})["limit"])


def raise_granted(ticket: Ticket) -> Amount | None:
    """The amount by which the decision raises the limit, or None."""
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
    """The clause about the decision in the run's termination."""
    if ticket.decision is None:
        return ", and no decision came in time"
    reason = ticket.decision.answer.reason
    return ", and no more was granted" + (f": {reason}" if reason else "")


def _amount(given: Json) -> Amount:
    amount: Amount = (as_object(given) or {})[RAISE_BY]
    return amount


def proposed_raise(own_size: Amount, allowed: Amount, used: Amount) -> Amount:
    """The smallest multiple of the limit's own size that leaves room for more. A limit of 0 has the size 1."""
    size = own_size or 1
    proposed = size * max(1, floor((used - allowed) / size) + 1)
    return round(proposed, 6) if isinstance(proposed, float) else proposed


def _schema(limit: Limit) -> JsonObject:
    amount: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": MAX_AMOUNT}
    if limit in (Limit.WALL_SECONDS, Limit.COST_USD):
        amount = {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_AMOUNT}
    return {
        "type": "object",
        "properties": {RAISE_BY: amount},
        "required": [RAISE_BY],
        "additionalProperties": False,
    }


def _shown(limit: Limit, amount: Amount) -> Amount:
    if not isinstance(amount, float):
        return amount
    return round(amount, 6 if limit is Limit.COST_USD else 3)
