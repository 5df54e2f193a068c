"""Resolves a spec, which may be an old version from the database, to an agent that can run."""

from pydantic import ValidationError

from app.agents.agent_tools import plugins_of, tools_of
from app.agents.catalog import Catalog
from app.domain.agents.mcp_references import MCP_SEPARATOR, servers_in
from app.domain.agents.specs import AgentSpec
from app.domain.deps import NO_DEPS, Deps
from app.llm.catalog import ModelCatalog
from app.runtime.agent import ResolvedAgent, UnknownAgentVersion
from app.runtime.ports.prices import NO_PRICES
from app.tools.requested_answers import SchemaOutput


def resolve(
    spec: AgentSpec, catalog: Catalog, models: ModelCatalog, deps: Deps = NO_DEPS
) -> ResolvedAgent | UnknownAgentVersion:
    """The agent with its model, tools and plugins, or what is missing."""
    unknown_agents = [name for name in spec.delegates if name not in catalog.agents]
    functions = [name for name in spec.tools if MCP_SEPARATOR not in name]
    missing = [name for name in functions if name not in catalog.tools]
    reasons = [f"there is no tool {name!r} any more" for name in missing]
    reasons += [
        f"there is no MCP server {name!r} any more"
        for name in sorted(servers_in(spec.tools) - set(catalog.mcp))
    ]
    reasons += [f"there is no agent {name!r} any more" for name in unknown_agents]
    reasons += [
        f"there is no plugin {name!r} any more"
        for name in spec.plugins
        if name not in catalog.plugins
    ]
    reasons += [
        f"there is no skill {skill.name!r} any more"
        for skill in spec.skills
        if skill.name not in catalog.skills
    ]
    invalid_tables = _invalid_tables(spec, catalog)
    reasons += invalid_tables
    if not invalid_tables:
        reasons += [
            problem
            for name in models_of(spec, catalog)
            if (problem := models.problem(name)) is not None
        ]
    if reasons:
        return UnknownAgentVersion(f"agent {spec.id!r} can't run: {'; '.join(reasons)}")
    plugins = plugins_of(spec, catalog.plugins, catalog.skills)
    tools = tools_of(spec, plugins, tools=catalog.tools, agents=catalog.agents)
    summarizer = None
    if plugins.compaction is not None:
        summarizer = plugins.compaction.model or spec.model
    return ResolvedAgent(
        spec=spec,
        model=models.with_breaker(spec.model),
        prices=models.prices(spec.model),
        tools=tools,
        plugins=plugins,
        deps=deps,
        output=None if spec.output is None else SchemaOutput(spec.output, is_trusted=True),
        summarizer=None if summarizer is None else models.with_breaker(summarizer),
        summarizer_prices=NO_PRICES if summarizer is None else models.prices(summarizer),
    )


def _invalid_tables(spec: AgentSpec, catalog: Catalog) -> list[str]:
    """Why tables of plugins can't be used. A stored version may have keys or rules that are no longer valid."""
    reasons = []
    for name, table in spec.plugins.items():
        if name in catalog.plugins:
            try:
                catalog.plugins[name].config.model_validate(table)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]["msg"]
                reasons.append(f"the table of its plugin {name!r} isn't valid any more ({first})")
    return reasons


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
