"""Remembered rules: what people have decided once for calls to come, visible and revocable."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from app.domain.ids import AgentId, RuleId, TicketKey
from app.domain.rules.parser import exact_pattern
from app.domain.rules.rules import Behavior, Rule
from app.domain.tickets.decisions import Action
from app.domain.tickets.tickets import Ticket


class RuleScope(StrEnum):
    """How far a rule goes: to the end of a run, of a thread, or wherever the agent is at work."""

    RUN = "run"
    THREAD = "thread"
    AGENT = "agent"


class Match(StrEnum):
    """Which calls are meant: every one of the tool, or those with exactly these arguments."""

    TOOL = "tool"
    ARGUMENTS = "arguments"


@dataclass(frozen=True, slots=True)
class Remember:
    """A wish that an answer counts for calls to come."""

    scope: RuleScope
    match: Match = Match.TOOL


BEHAVIORS = {Action.APPROVE: Behavior.ALLOW, Action.REJECT: Behavior.DENY}
"""The answers that can be remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedRule:
    """Only calls of the agent that had asked are meant: another one's are another matter."""

    id: RuleId
    scope: RuleScope
    scope_id: str
    agent_id: AgentId
    rule: Rule
    ticket: TicketKey | None
    created_by: str
    created_at: datetime
    revoked_by: str | None = None
    revoked_at: datetime | None = None


def rule_of_answer(
    ticket: Ticket,
    action: Action,
    remember: Remember,
    *,
    id: RuleId,
    by: str,
    at: datetime,
    reason: str | None,
) -> RememberedRule:
    """What an answer to a ticket means for calls like its own."""
    places = {
        RuleScope.RUN: str(ticket.run_id),
        RuleScope.THREAD: str(ticket.thread_id),
        RuleScope.AGENT: str(ticket.agent_id),
    }
    arguments = ticket.arguments if isinstance(ticket.arguments, dict) else {}
    return RememberedRule(
        id=id,
        scope=remember.scope,
        scope_id=places[remember.scope],
        agent_id=ticket.agent_id,
        rule=Rule(
            pattern=exact_pattern(ticket.tool_name),
            behavior=BEHAVIORS[action],
            arguments=arguments if remember.match is Match.ARGUMENTS else None,
            reason=reason,
        ),
        ticket=ticket.id,
        created_by=by,
        created_at=at,
    )
