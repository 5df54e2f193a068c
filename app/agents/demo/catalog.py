"""The catalog without an agents file: the demo agent, and one agent for each model that has a key."""

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from app.agents.catalog import Catalog, load_catalog
from app.domain.ids import AgentId
from app.domain.structs import replace
from app.llm.specs import ModelSpec

_FILE = Path(__file__).with_name("demo.toml")


def demo_catalog(*, default_models: Sequence[ModelSpec] = ()) -> Catalog:
    """Build `demo`, and the same agent on each default model, under that model's name."""
    catalog = load_catalog(_FILE, default_models=default_models)
    [demo] = catalog.agents.values()
    agents = {demo.id: demo}
    for model in default_models:
        agents[AgentId(model.name)] = replace(
            demo,
            id=AgentId(model.name),
            model=model.name,
            description=f"The demo agent on {model.provider}'s {model.model}.",
        )
    return replace(catalog, agents=MappingProxyType(agents))
