"""The catalog: every agent, model and tool that an agents file names, checked as a whole."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from app.agents.config_errors import ConfigErrors
from app.agents.delegation_checks import (
    check_agents,
    check_circles,
    check_delegates,
    check_handoffs,
)
from app.agents.endpoints import NO_ENDPOINTS, EndpointCatalog
from app.agents.entry_checks import (
    check_always_shown,
    check_approvers,
    check_built,
    check_executor,
    check_output,
    check_own_tools,
    check_plugins,
    check_tools,
)
from app.agents.entry_specs import agent_spec
from app.agents.file_schema import (
    FileSections,
    read_entries,
)
from app.agents.mcp_entries import check_servers, mcp_spec
from app.agents.skill_entries import check_skills, load_skills, skill_tools_of, tools_that_ask
from app.agents.tool_modules import UserExtensions, load_extensions
from app.builtin_plugins.builtin import BUILTIN_KINDS
from app.builtin_plugins.handoff import transfer_name
from app.builtin_plugins.kinds import PluginKind
from app.domain.agents.specs import AgentSpec
from app.domain.children.child_runs import delegate_tool_name
from app.domain.ids import AgentId
from app.domain.memories.tool_names import MEMORY_PLUGIN, MEMORY_TOOLS
from app.llm.specs import ModelSpec
from app.runtime.ports.tools import Tool
from app.tools.functions.startup import StartupFunction
from app.tools.mcp.server_spec import McpServerSpec
from app.tools.skills.skill import Skill

_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Catalog(Struct, frozen=True, kw_only=True):
    """The agents, models, tools and plugins of a file. `agents` are in the order of the file."""

    agents: Mapping[AgentId, AgentSpec]
    models: Mapping[str, ModelSpec]
    tools: Mapping[str, Tool]
    plugins: Mapping[str, PluginKind[Any]] = field(default_factory=lambda: BUILTIN_KINDS)
    startup: Sequence[StartupFunction] = ()
    """The functions that open the resources of tools and plugins, in the order of their modules."""
    mcp: Mapping[str, McpServerSpec] = {}
    skills: Mapping[str, Skill] = {}
    """The skills that agents name."""


def load_catalog(
    path: Path,
    *,
    default_models: Sequence[ModelSpec] = (),
    endpoints: EndpointCatalog = NO_ENDPOINTS,
) -> Catalog:
    """Load the file's catalog. Raises one ConfigurationError with all of its problems.

    Agents may also name a model of `default_models`; a model of the file with the same name wins.
    """
    problems = ConfigErrors(path)
    entries = read_entries(path, problems)
    models = {spec.name: spec for spec in default_models} | dict(entries.models)
    found, all_loaded = _extensions(path, entries, problems)
    plugins = {**BUILTIN_KINDS, **found.plugins}
    check_servers(entries.mcp, found.tools, problems)
    skills = load_skills(path, entries.agents, problems)
    for name, entry in entries.agents.items():
        key = f"agents.{name}"
        if not _AGENT_ID.fullmatch(name):
            problems.add(key, "an agent's name has 1 to 64 of A-Z a-z 0-9 . _ -; rename it")
        if entry is not None:
            check_executor(key, entry, models, endpoints, problems)
            check_tools(key, entry, found.tools if all_loaded else None, entries.mcp, problems)
            check_always_shown(f"{key}.tool_search.always", entry, problems)
            transfers = [transfer_name(AgentId(agent)) for agent in entry.handoffs]
            delegations = [delegate_tool_name(AgentId(agent)) for agent in entry.delegates]
            of_memory = MEMORY_TOOLS if MEMORY_PLUGIN in entry.plugins else ()
            of_plugins = [*transfers, *skill_tools_of(entry), *of_memory]
            callable_ = [*entry.tools, *delegations, *of_plugins]
            check_skills(key, entry, skills, callable_, problems)
            check_own_tools(f"{key}.approval", entry.approval, callable_, problems)
            in_background = [*entry.tools, *delegations]
            check_own_tools(f"{key}.background", entry.background, in_background, problems)
            asking = {name for name, tool in found.tools.items() if tool.may_open_tickets}
            asking |= tools_that_ask(entry)
            check_approvers(f"{key}.approvers", entry, callable_, asking, problems)
            check_agents(f"{key}.handoffs", name, entry.handoffs, entries.agents, problems)
            check_agents(f"{key}.delegates", name, entry.delegates, entries.agents, problems)
            check_handoffs(f"{key}.handoffs", entry, entries.agents, problems)
            check_delegates(key, entry, entries.agents, endpoints, problems)
            check_plugins(key, entry, plugins, models, problems)
            check_output(f"{key}.output", entry.output, problems)
    check_circles(entries.agents, problems)
    problems.raise_any()
    specs = [agent_spec(name, entry, skills) for name, entry in entries.agents.items() if entry]
    agents = {spec.id: spec for spec in specs}
    for spec in specs:
        check_built(spec, plugins, found.tools, agents, skills, problems)
    problems.raise_any()
    return Catalog(
        agents=MappingProxyType(agents),
        models=MappingProxyType({name: spec for name, spec in models.items() if spec}),
        tools=MappingProxyType({**found.tools}),
        plugins=MappingProxyType(plugins),
        startup=found.startup,
        skills=MappingProxyType(skills),
        mcp=MappingProxyType(
            {
                name: mcp_spec(name, entry, path.parent.resolve())
                for name, entry in entries.mcp.items()
                if entry
            }
        ),
    )


def _extensions(
    path: Path, entries: FileSections, problems: ConfigErrors
) -> tuple[UserExtensions, bool]:
    """What the modules define, and whether all of them were loaded."""
    if entries.tools is None:
        return UserExtensions(), False
    before = len(problems.sentences)
    found = load_extensions(path.parent, entries.tools.modules, problems)
    return found, len(problems.sentences) == before
