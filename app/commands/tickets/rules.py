"""List and revoke remembered rules."""

from app.context import ServiceContext
from app.domain.errors import NotFound
from app.domain.ids import AgentId, RuleId
from app.domain.principals import Principal, Scope
from app.domain.rules.remembered import RememberedRule, RuleScope
from app.domain.slices import PageRequest, Slice
from app.storage.tickets import rules


async def list_rules(
    ctx: ServiceContext,
    principal: Principal,
    *,
    scope: RuleScope | None,
    scope_id: str | None,
    agent_id: AgentId | None,
    with_revoked: bool,
    requested: PageRequest,
) -> Slice[RememberedRule]:
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        return await rules.page(
            connection,
            principal.tenant,
            scope=scope,
            scope_id=scope_id,
            agent_id=agent_id,
            with_revoked=with_revoked,
            requested=requested,
        )


async def revoke_rule(ctx: ServiceContext, principal: Principal, id: RuleId) -> None:
    """Revoke a rule: it no longer applies from each run's next step on."""
    principal.require(Scope.DECISIONS_WRITE)
    async with ctx.database.transaction() as connection:
        if not await rules.revoke(connection, principal.tenant, id, by=principal.subject):
            raise NotFound("rule_not_found", f"There is no rule {id}.")
