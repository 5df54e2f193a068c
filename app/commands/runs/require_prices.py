"""Refuses a run with a limit of its cost if one of the models that it may ask has no known price."""

from app.context import ServiceContext
from app.domain.errors import Invalid
from app.domain.inference.options import NO_OPTIONS, models_in_order, options_from_json
from app.domain.json_values import JsonObject
from app.domain.runs.limits import Limit
from app.domain.runs.runs import NewRun
from app.domain.usage.billed_requests import BilledTokens
from app.runtime.agent import ResolvedAgent


async def require_prices(ctx: ServiceContext, run: NewRun) -> None:
    """Refuse before anything is written. A run whose agent isn't known here is checked by its worker."""
    if Limit.COST_USD not in run.request.get("limits", {}):
        return
    agent = await ctx.agents.resolve(run.tenant, run.agent_id, run.agent_version)
    if not isinstance(agent, ResolvedAgent):
        return
    await agent.prices.load()
    unpriced = [
        model
        for model in _models(agent, run.request)
        if agent.prices.cost(model, BilledTokens(), ctx.clock.now()) is None
    ]
    if unpriced:
        raise Invalid(
            "price_unknown",
            f"The run has the limit cost_usd, and no price is known for {', '.join(unpriced)}. Give the model a "
            "[models.NAME.price] in the agents file, or use another limit.",
            models=unpriced,
        )


def _models(agent: ResolvedAgent, request: JsonObject) -> list[str]:
    """The models that the run may ask, fallbacks included."""
    stored = request.get("overrides")
    overrides = NO_OPTIONS if stored is None else options_from_json(stored)
    spec = agent.spec
    return models_in_order(agent.model.name, spec.options.overridden_by(overrides), spec.retry)
