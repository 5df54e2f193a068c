"""Remembered rules: decisions that also count for later calls; they can be listed and revoked."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from app.domain.ids import AgentId, RuleId, TicketKey
from app.domain.rules.parser import exact_pattern
from app.domain.rules.rules import Behavior, Rule
from app.domain.tickets.decisions import Action
from app.domain.tickets.tickets import Ticket


class RuleScope(StrEnum):
    """Where a rule counts: in one run, in one thread, or for the agent everywhere."""

    RUN = "run"
    THREAD = "thread"
    AGENT = "agent"


class Match(StrEnum):
    """Which calls a rule matches: all calls of the tool, or those with exactly these arguments."""

    TOOL = "tool"
    ARGUMENTS = "arguments"


class Remember(Struct, frozen=True):
    """Asks that a decision counts for later calls, too."""

    scope: RuleScope
    match: Match = Match.TOOL


BEHAVIORS = {Action.APPROVE: Behavior.ALLOW, Action.REJECT: Behavior.DENY}
"""The decisions that can be remembered, and the behavior of their rules."""


class RememberedRule(Struct, frozen=True, kw_only=True):
    """A stored rule. It matches only calls of the agent whose ticket it came from."""

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
    """The rule for later calls that a decision makes."""
    scope_ids = {
        RuleScope.RUN: str(ticket.run_id),
        RuleScope.THREAD: str(ticket.thread_id),
        RuleScope.AGENT: str(ticket.agent_id),
    }
    arguments = ticket.arguments if isinstance(ticket.arguments, dict) else {}
    return RememberedRule(
        id=id,
        scope=remember.scope,
        scope_id=scope_ids[remember.scope],
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
