"""From a spec, which may be an old one out of the database, to an agent that can run now."""

from app.agents.catalog import Catalog
from app.builtin_plugins.builtin import builtin_plugins
from app.domain.agents.specs import AgentSpec
from app.llm.catalog import ModelCatalog
from app.runtime.agent import ResolvedAgent, UnknownAgentVersion
from app.runtime.plugins import PluginSet
from app.tools.background import BACKGROUND_TOOLS
from app.tools.subagent import SubagentTool


def resolve(
    spec: AgentSpec, catalog: Catalog, models: ModelCatalog
) -> ResolvedAgent | UnknownAgentVersion:
    """The agent with its model and its tools, or what is missing."""
    strangers = [name for name in spec.delegates if name not in catalog.agents]
    missing = [name for name in spec.tools if name not in catalog.tools]
    reasons = [f"there is no tool {name!r} any more" for name in missing]
    reasons += [f"there is no agent {name!r} any more" for name in strangers]
    reasons += [
        f"there is no plugin {name!r} any more"
        for name in spec.plugins
        if name not in catalog.plugins
    ]
    reasons += [
        problem
        for name in models_of(spec, catalog)
        if (problem := models.problem(name)) is not None
    ]
    if reasons:
        return UnknownAgentVersion(f"agent {spec.id!r} can't run: {'; '.join(reasons)}")
    tools = {name: catalog.tools[name] for name in spec.tools}
    delegates = [SubagentTool(catalog.agents[name]) for name in spec.delegates]
    tools |= {tool.descriptor.name: tool for tool in delegates}
    named = [catalog.plugins[name].made(spec, table) for name, table in spec.plugins.items()]
    plugins = PluginSet([*builtin_plugins(spec), *named])
    for plugin in plugins.plugins:
        tools |= {tool.descriptor.name: tool for tool in plugin.tools}
    if spec.background:
        tools = {**BACKGROUND_TOOLS, **tools}
    return ResolvedAgent(
        spec=spec,
        model=models.with_breaker(spec.model),
        tools=tools,
        plugins=plugins,
        summarizer=None
        if plugins.compaction is None
        else models.with_breaker(plugins.compaction.model or spec.model),
    )


def models_of(spec: AgentSpec, catalog: Catalog) -> list[str]:
    """The names of all models that an agent needs, its own first; one behind an endpoint needs none."""
    if spec.endpoint is not None:
        return []
    named = [
        model
        for name, table in spec.plugins.items()
        if name in catalog.plugins
        for model in catalog.plugins[name].config.model_validate(table).models.values()
    ]
    return [spec.model, *(name for name in named if name != spec.model)]
