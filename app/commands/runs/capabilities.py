"""Capabilities: what a request needs and its agent's backend lacks is refused before anything is written."""

from app.context import ServiceContext
from app.domain.agents.capabilities import RootNeeds, unsupported_message, unsupported_root_features
from app.domain.errors import Invalid
from app.domain.ids import AgentId


def require_supported(ctx: ServiceContext, agent_id: AgentId, needs: RootNeeds) -> None:
    features = unsupported_root_features(ctx.agents.capabilities(agent_id), needs)
    if features:
        raise Invalid(
            "backend_unsupported",
            f"{unsupported_message(agent_id, features)}. Leave that out, or choose another agent.",
            features=features,
        )
