"""Remembered rules over HTTP: what was decided for calls to come."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from app.api.schemas.common import ListCursor, ListLimit, Page, ResponseModel, Str, Time, Uuid
from app.commands.tickets import rules
from app.domain.ids import AgentId, RuleId
from app.domain.rules.remembered import RememberedRule, RuleScope
from app.http import cursors
from app.http.access import AuthorizedRoute, MayDecide, MayRead
from app.http.deps import ContextDep
from app.http.error_codes import error_responses

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/rules", tags=["rules"])


class RuleOut(ResponseModel):
    """What happens to calls like one that was answered. It comes from a decision with `remember`."""

    id: str
    scope: Literal["run", "thread", "agent"]
    scope_id: str = Field(description="The run, the thread or the agent.")
    agent_id: str = Field(description="Only calls of this agent are meant.")
    pattern: str
    arguments: dict[str, Any] | None = Field(
        description="Only calls with exactly these arguments; null: whatever they are."
    )
    behavior: Literal["allow", "ask", "deny"]
    reason: str | None
    ticket: str | None = Field(description="The ticket whose answer was remembered.")
    created_by: str
    created_at: Time
    revoked_by: str | None
    revoked_at: Time | None


def rule_out(made: RememberedRule) -> RuleOut:
    rule = made.rule
    return RuleOut(
        id=made.id,
        scope=made.scope.value,
        scope_id=made.scope_id,
        agent_id=made.agent_id,
        pattern=rule.pattern.text,
        arguments=None if rule.arguments is None else dict(rule.arguments),
        behavior=rule.behavior.value,
        reason=rule.reason,
        ticket=made.ticket,
        created_by=made.created_by,
        created_at=made.created_at,
        revoked_by=made.revoked_by,
        revoked_at=made.revoked_at,
    )


@router.get("")
async def list_rules(
    ctx: ContextDep,
    principal: MayRead,
    scope: RuleScope | None = None,
    scope_id: Annotated[Str | None, Query(max_length=200)] = None,
    agent_id: Annotated[Str | None, Query(max_length=200)] = None,
    revoked: Annotated[bool, Query(description="`1` shows revoked ones too.")] = False,
    cursor: ListCursor = None,
    limit: ListLimit = 50,
) -> Page[RuleOut]:
    """Rules that the gate applies, newest first."""
    query = {
        "list": "rules",
        "scope": scope,
        "scope_id": scope_id,
        "agent_id": agent_id,
        "revoked": revoked,
    }
    place = cursors.decode(query, cursor)
    found = await rules.list_rules(
        ctx,
        principal,
        scope=scope,
        scope_id=scope_id,
        agent_id=None if agent_id is None else AgentId(agent_id),
        with_revoked=revoked,
        before=None if place is None else (place[0], RuleId(place[1])),
        limit=limit,
    )
    return Page[RuleOut].of(
        found,
        show=rule_out,
        cursor=lambda made: cursors.encode(query, made.created_at, made.id),
    )


@router.delete("/{id}", status_code=204, responses=error_responses("rule_not_found"))
async def revoke_a_rule(id: Uuid, ctx: ContextDep, principal: MayDecide) -> None:
    """Calls like these are judged without it from the next step on. It stays in the list of revoked."""
    await rules.revoke_rule(ctx, principal, RuleId(id))
