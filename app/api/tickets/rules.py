"""Routes of remembered rules."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import AliasPath, Field

from app.api.lists import Listed
from app.api.schemas.common import Page, ResponseModel, Str, Time, Uuid
from app.commands.tickets import rules
from app.domain.ids import AgentId, RuleId
from app.domain.rules.remembered import RuleScope
from app.http import cursors
from app.http.access import AuthorizedRoute, MayDecide, MayRead
from app.http.deps import ContextDep
from app.http.error_codes import error_responses

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/rules", tags=["rules"])


class RuleOut(ResponseModel):
    """A rule for later calls, made by a decision with `remember`."""

    id: str
    scope: Literal["run", "thread", "agent"]
    scope_id: str = Field(description="Id of the run, thread or agent that the rule applies to.")
    agent_id: str = Field(description="The rule applies to calls of this agent.")
    pattern: str = Field(validation_alias=AliasPath("rule", "pattern", "text"))
    arguments: dict[str, Any] | None = Field(
        validation_alias=AliasPath("rule", "arguments"),
        description="Only calls with exactly these arguments; null for all.",
    )
    behavior: Literal["allow", "ask", "deny"] = Field(
        validation_alias=AliasPath("rule", "behavior")
    )
    reason: str | None = Field(validation_alias=AliasPath("rule", "reason"))
    ticket_id: str | None = Field(
        validation_alias="ticket",
        description="Id of the ticket whose decision was remembered.",
    )
    created_by: str
    created_at: Time
    revoked_by: str | None
    revoked_at: Time | None


@router.get("")
async def list_rules(
    ctx: ContextDep,
    principal: MayRead,
    paging: Listed,
    scope: RuleScope | None = None,
    scope_id: Annotated[Str | None, Query(max_length=200)] = None,
    agent_id: Annotated[Str | None, Query(max_length=200)] = None,
    include: Annotated[
        Literal["revoked"] | None, Query(description="`revoked` includes revoked rules.")
    ] = None,
) -> Page[RuleOut]:
    """List remembered rules, by default the newest first."""
    query = paging.of(
        list="rules", scope=scope, scope_id=scope_id, agent_id=agent_id, include=include
    )
    found = await rules.list_rules(
        ctx,
        principal,
        scope=scope,
        scope_id=scope_id,
        agent_id=None if agent_id is None else AgentId(agent_id),
        with_revoked=include == "revoked",
        requested=query.by_creation(),
    )
    return Page[RuleOut].of(
        found,
        show=RuleOut.model_validate,
        cursor=lambda made: cursors.encode(query.name, made.created_at, made.id),
    )


@router.delete("/{rule_id}", status_code=204, responses=error_responses("rule_not_found"))
async def revoke_rule(rule_id: Uuid, ctx: ContextDep, principal: MayDecide) -> None:
    """Revoke a rule. It no longer applies from the next step on."""
    await rules.revoke_rule(ctx, principal, RuleId(rule_id))
