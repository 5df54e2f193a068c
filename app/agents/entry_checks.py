"""Checks of an agent's entry: its model or endpoint, its tools, approvers and plugins."""

from collections.abc import Collection, Mapping
from typing import Any

from app.agents.agent_tools import plugins_of, tools_of
from app.agents.config_errors import ConfigErrors
from app.agents.delegation_checks import (
    check_duplicates,
    endpoint_of,
)
from app.agents.endpoints import EndpointCatalog
from app.agents.file_schema import (
    AgentEntry,
    OutputEntry,
    check_entry,
)
from app.agents.mcp_entries import check_reference
from app.builtin_plugins.kinds import PluginKind
from app.domain.agents.mcp_references import MCP_SEPARATOR, may_name_mcp_tool
from app.domain.agents.specs import AgentSpec
from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId
from app.domain.rules.globs import Glob
from app.domain.runs.output_specs import problem_of_output
from app.domain.suggestions import did_you_mean
from app.domain.tickets.limit_tickets import LIMIT_TOOL_NAME
from app.runtime.ports.tools import Tool
from app.tools.background import BACKGROUND_TOOLS
from app.tools.schemas.validate import build_validator
from app.tools.skills.skill import Skill

_KEYS_OF_ENDPOINT_AGENTS = frozenset({"endpoint", "description", "ticket_expires_in", "on_expiry"})


def check_executor(
    key: str,
    entry: AgentEntry,
    models: Collection[str],
    endpoints: EndpointCatalog,
    problems: ConfigErrors,
) -> None:
    """An agent has a model for our own loop, or an endpoint."""
    if entry.endpoint is None:
        if entry.model is None:
            problems.add(f"{key}.model", 'is missing; add model = "…", or an endpoint')
        else:
            _check_model(f"{key}.model", entry.model, models, problems)
        return
    for name in sorted(entry.model_fields_set - _KEYS_OF_ENDPOINT_AGENTS):
        problems.add(f"{key}.{name}", "means nothing for an agent behind an endpoint; remove it")
    for at, sentence in endpoints.option_errors(endpoint_of(entry.endpoint)):
        problems.add(f"{key}.endpoint.{at}", sentence)


def _check_model(key: str, model: str, known: Collection[str], problems: ConfigErrors) -> None:
    if model not in known:
        problems.add(
            key,
            f"there is no model {model!r}, {did_you_mean(model, known)};"
            f" add [models.{model}] or name another",
        )


def check_tools(
    key: str,
    entry: AgentEntry,
    known: Collection[str] | None,
    servers: Mapping[str, object],
    problems: ConfigErrors,
) -> None:
    check_duplicates(f"{key}.tools", entry.tools, problems)
    for position, name in enumerate(entry.tools):
        if MCP_SEPARATOR in name:
            check_reference(f"{key}.tools[{position}]", name, servers, problems)
        elif known is not None and name not in known:
            problems.add(
                f"{key}.tools[{position}]",
                f"there is no tool {name!r}, {did_you_mean(name, known)};"
                " define it in a module of tools.modules or remove it",
            )
        if entry.background and name in BACKGROUND_TOOLS:
            problems.add(
                f"{key}.tools[{position}]",
                f"{name!r} is a tool that agents with background tools have besides; rename yours",
            )


def check_own_tools(
    key: str, names: list[str], own: Collection[str], problems: ConfigErrors
) -> None:
    """Check a list of the agent's own tools."""
    check_duplicates(key, names, problems)
    for position, name in enumerate(names):
        tool = name.partition("(")[0]
        if tool != name and tool in own:
            problems.add(
                f"{key}[{position}]",
                f"{name!r} is a rule, and this list has names of tools; list {tool!r} here, or write the rule into"
                " plugins.permission.rules of the agent",
            )
        elif name not in own and not may_name_mcp_tool(name, own):
            problems.add(
                f"{key}[{position}]",
                f"the agent has no tool {name!r}, {did_you_mean(name, own)};"
                " add it to the agent's tools or remove it here",
            )


def check_always_shown(key: str, entry: AgentEntry, problems: ConfigErrors) -> None:
    """Refuse a glob that none of the agent's tools fits. Which tools MCP servers have is known later."""
    for position, text in enumerate(entry.tool_search.always):
        has_servers = any(MCP_SEPARATOR in name for name in entry.tools)
        if not has_servers and not any(Glob(text).fits(name) for name in entry.tools):
            problems.add(
                f"{key}[{position}]",
                f"the agent has no tool {text!r}, {did_you_mean(text, entry.tools)};"
                " correct it or remove it here",
            )


def check_approvers(
    key: str,
    entry: AgentEntry,
    known: Collection[str],
    asking: Collection[str],
    problems: ConfigErrors,
) -> None:
    """Refuse a rule for calls that never become tickets, because it would have no effect. Tickets about
    limits are requested by the start of a run, so they may have a rule."""
    for name in entry.approvers:
        if name == LIMIT_TOOL_NAME or may_name_mcp_tool(name, entry.tools):
            continue
        if name not in known:
            problems.add(
                f"{key}.{name}",
                f"the agent has no tool {name!r}, {did_you_mean(name, known)}; remove its table",
            )
        elif name not in (*entry.approval, *asking) and "permission" not in entry.plugins:
            problems.add(
                f"{key}.{name}",
                f"calls of {name!r} run without a ticket; add it to approval too",
            )


def check_plugins(
    key: str,
    entry: AgentEntry,
    kinds: Mapping[str, PluginKind[Any]],
    models: Collection[str],
    problems: ConfigErrors,
) -> None:
    for name, table in entry.plugins.items():
        kind = kinds.get(name)
        if kind is None:
            problems.add(
                f"{key}.plugins.{name}",
                f"there is no plugin {name!r}, {did_you_mean(name, kinds)}; remove its table",
            )
        else:
            config = check_entry(kind.config, f"{key}.plugins.{name}", table, problems)
            named: Mapping[str, str] = {} if config is None else config.models
            for each, model in named.items():
                _check_model(f"{key}.plugins.{name}.{each}", model, models, problems)


def check_output(key: str, output: OutputEntry | None, problems: ConfigErrors) -> None:
    if output is None:
        return
    problem = problem_of_output(output.schema_, output.name, strict=output.strict)
    if problem is not None:
        problems.add(key, problem)
        return
    try:
        build_validator(output.schema_)
    except ConfigurationError as error:
        problems.add(f"{key}.schema", str(error))


def check_built(
    spec: AgentSpec,
    kinds: Mapping[str, PluginKind[Any]],
    tools: Mapping[str, Tool],
    agents: Mapping[AgentId, AgentSpec],
    skills: Mapping[str, Skill],
    problems: ConfigErrors,
) -> None:
    """Build the agent's plugins, and let each check its table against the agent's tools."""
    if spec.endpoint is not None:
        return
    key = f"agents.{spec.id}.plugins"
    try:
        plugins = plugins_of(spec, kinds, skills)
    except Exception as error:  # noqa: BLE001  a plugin's code
        problems.add(key, f"can't be built: {type(error).__name__}: {error}; correct it there")
        return
    callable_ = tools_of(spec, plugins, tools=tools, agents=agents)
    descriptors = {name: tool.descriptor for name, tool in callable_.items()}
    for name, table in spec.plugins.items():
        for problem in kinds[name].problems(spec, table, descriptors):
            problems.add(f"{key}.{name}.{problem.key}", problem.sentence)
