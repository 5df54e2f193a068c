"""The catalog: every agent, model and tool that an agents file names, checked as a whole."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from app.agents.config_errors import ConfigErrors, did_you_mean
from app.agents.endpoints import NO_ENDPOINTS, EndpointCatalog
from app.agents.file_schema import (
    AgentEntry,
    EndpointEntry,
    FileSections,
    OptionsEntry,
    RetryEntry,
    check_entry,
    read_entries,
)
from app.agents.tool_modules import UserExtensions, load_extensions
from app.builtin_plugins.builtin import BUILTIN_KINDS
from app.builtin_plugins.handoff import transfer_name
from app.builtin_plugins.kinds import PluginKind
from app.domain.agents.capabilities import unsupported_delegate_features, unsupported_message
from app.domain.agents.endpoints import Endpoint
from app.domain.agents.specs import AgentSpec, Delegation, ToolExecution
from app.domain.children.child_runs import delegate_tool_name, needs_of
from app.domain.ids import AgentId
from app.domain.inference.options import InferenceOptions, RetryPolicy, ThinkingBudget
from app.domain.tickets.limit_tickets import LIMIT_TOOL_NAME
from app.domain.tickets.terms import ApproverRule, OnExpiry
from app.llm.specs import ModelSpec
from app.runtime.ports import Tool
from app.tools.background import BACKGROUND_TOOLS

_OF_ENDPOINT_AGENTS = frozenset({"endpoint", "description", "ticket_expires_in", "on_expiry"})
_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """What there is to run. `agents` are in the order of their file."""

    agents: Mapping[AgentId, AgentSpec]
    models: Mapping[str, ModelSpec]
    tools: Mapping[str, Tool]
    plugins: Mapping[str, PluginKind[Any]] = field(default_factory=lambda: BUILTIN_KINDS)


def load_catalog(
    path: Path,
    *,
    default_models: Sequence[ModelSpec] = (),
    endpoints: EndpointCatalog = NO_ENDPOINTS,
) -> Catalog:
    """The file's catalog, or one ConfigurationError with all that is wrong with it.

    Agents may also name one of `default_models`, unless the file has a model of the same name.
    """
    problems = ConfigErrors(path)
    entries = read_entries(path, problems)
    models = {spec.name: spec for spec in default_models} | dict(entries.models)
    found, all_loaded = _extensions(path, entries, problems)
    plugins = {**BUILTIN_KINDS, **found.plugins}
    for name, entry in entries.agents.items():
        key = f"agents.{name}"
        if not _AGENT_ID.fullmatch(name):
            problems.add(key, "an agent's name has 1 to 64 of A-Z a-z 0-9 . _ -; rename it")
        if entry is not None:
            _check_executor(key, entry, models, endpoints, problems)
            _check_tools(key, entry, found.tools if all_loaded else None, problems)
            transfers = [transfer_name(AgentId(agent)) for agent in entry.handoffs]
            delegations = [delegate_tool_name(AgentId(agent)) for agent in entry.delegates]
            callable_ = [*entry.tools, *transfers, *delegations]
            _check_chosen(f"{key}.approval", entry.approval, callable_, problems)
            in_background = [*entry.tools, *delegations]
            _check_chosen(f"{key}.background", entry.background, in_background, problems)
            _check_approvers(f"{key}.approvers", entry, callable_, problems)
            _check_agents(f"{key}.handoffs", name, entry.handoffs, entries.agents, problems)
            _check_agents(f"{key}.delegates", name, entry.delegates, entries.agents, problems)
            _check_handoffs(f"{key}.handoffs", entry, entries.agents, problems)
            _check_delegates(key, entry, entries.agents, endpoints, problems)
            _check_plugins(key, entry, plugins, models, problems)
    problems.raise_any()
    specs = [_agent_spec(name, entry) for name, entry in entries.agents.items() if entry]
    return Catalog(
        agents=MappingProxyType({spec.id: spec for spec in specs}),
        models=MappingProxyType({name: spec for name, spec in models.items() if spec}),
        tools=MappingProxyType({**found.tools}),
        plugins=MappingProxyType(plugins),
    )


def _extensions(
    path: Path, entries: FileSections, problems: ConfigErrors
) -> tuple[UserExtensions, bool]:
    """What modules bring, and whether it is all: names are unknown only if no module is missing."""
    if entries.tools is None:
        return UserExtensions(), False
    before = len(problems.sentences)
    found = load_extensions(path.parent, entries.tools.modules, problems)
    return found, len(problems.sentences) == before


def _check_executor(
    key: str,
    entry: AgentEntry,
    models: Collection[str],
    endpoints: EndpointCatalog,
    problems: ConfigErrors,
) -> None:
    """Either our own loop asks a model, or somebody else executes the agent."""
    if entry.endpoint is None:
        if entry.model is None:
            problems.add(f"{key}.model", 'is missing; add model = "…", or an endpoint')
        else:
            _check_model(f"{key}.model", entry.model, models, problems)
        return
    for name in sorted(entry.model_fields_set - _OF_ENDPOINT_AGENTS):
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


def _check_tools(
    key: str, entry: AgentEntry, known: Collection[str] | None, problems: ConfigErrors
) -> None:
    _check_duplicates(f"{key}.tools", entry.tools, problems)
    for position, name in enumerate(entry.tools):
        if known is not None and name not in known:
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


def _check_chosen(key: str, names: list[str], own: Collection[str], problems: ConfigErrors) -> None:
    """Some of the agent's own tools, named again because they are to be treated differently."""
    _check_duplicates(key, names, problems)
    for position, name in enumerate(names):
        if name not in own:
            problems.add(
                f"{key}[{position}]",
                f"the agent has no tool {name!r}, {did_you_mean(name, own)};"
                " add it to the agent's tools or remove it here",
            )


def _check_approvers(
    key: str, entry: AgentEntry, known: Collection[str], problems: ConfigErrors
) -> None:
    """A rule for calls that nobody is asked about would look as if it kept them back. That people are
    asked about limits is for whoever starts a run to say."""
    for name in entry.approvers:
        if name == LIMIT_TOOL_NAME:
            continue
        if name not in known:
            problems.add(
                f"{key}.{name}",
                f"the agent has no tool {name!r}, {did_you_mean(name, known)}; remove its table",
            )
        elif name not in entry.approval and "permission" not in entry.plugins:
            problems.add(
                f"{key}.{name}",
                f"calls of {name!r} run without anybody being asked; add it to approval too",
            )


def _check_agents(
    key: str, agent: str, named: list[str], known: Collection[str], problems: ConfigErrors
) -> None:
    """Other agents that this one gives its run to, or work."""
    _check_duplicates(key, named, problems)
    for position, name in enumerate(named):
        if name == agent:
            problems.add(f"{key}[{position}]", "is the agent itself; remove it")
        elif name not in known:
            problems.add(
                f"{key}[{position}]",
                f"there is no agent {name!r}, {did_you_mean(name, known)}; add it or remove it here",
            )


def _check_handoffs(
    key: str, entry: AgentEntry, agents: Mapping[str, AgentEntry | None], problems: ConfigErrors
) -> None:
    """A run that has begun here can't continue on a remote server."""
    for position, name in enumerate(entry.handoffs):
        target = agents.get(name)
        if target is not None and target.endpoint is not None:
            problems.add(
                f"{key}[{position}]",
                f"agent {name!r} is executed by a remote server and can't take over a run;"
                " name it in delegates instead",
            )


def _check_delegates(
    key: str,
    entry: AgentEntry,
    agents: Mapping[str, AgentEntry | None],
    endpoints: EndpointCatalog,
    problems: ConfigErrors,
) -> None:
    """What is known of those elsewhere before anybody asks them for anything."""
    delegation = Delegation(**entry.delegation.model_dump())
    for position, name in enumerate(entry.delegates):
        delegate = agents.get(name)
        if delegate is None or delegate.endpoint is None:
            continue
        endpoint = endpoint_of(delegate.endpoint)
        if endpoints.option_errors(endpoint):
            continue
        in_background = delegate_tool_name(AgentId(name)) in entry.background
        needs = needs_of(delegation, in_background=in_background)
        lacking = unsupported_delegate_features(endpoints.capabilities(endpoint), needs)
        if lacking:
            remedy = "take it out of background" if in_background else "remove it here"
            problems.add(
                f"{key}.delegates[{position}]",
                f"{unsupported_message(AgentId(name), lacking)}; {remedy}",
            )


def _check_plugins(
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


def _check_duplicates(key: str, names: list[str], problems: ConfigErrors) -> None:
    for position, name in enumerate(names):
        if name in names[:position]:
            problems.add(f"{key}[{position}]", f"{name!r} is listed twice; remove one of them")


def endpoint_of(entry: EndpointEntry) -> Endpoint:
    return Endpoint(**entry.model_dump(exclude={"options"}), options=entry.options)


def _agent_spec(name: str, entry: AgentEntry) -> AgentSpec:
    return AgentSpec(
        id=AgentId(name),
        model=entry.model or "",
        endpoint=None if entry.endpoint is None else endpoint_of(entry.endpoint),
        system_prompt=entry.system_prompt,
        description=entry.description,
        tools=tuple(entry.tools),
        approval=tuple(entry.approval),
        background=tuple(entry.background),
        handoffs=tuple(AgentId(each) for each in entry.handoffs),
        delegates=tuple(AgentId(each) for each in entry.delegates),
        delegation=Delegation(**entry.delegation.model_dump()),
        max_rounds=entry.max_rounds,
        tool_execution=ToolExecution(entry.tool_execution),
        options=_options(entry.options),
        retry=_retry(entry.retry),
        plugins=MappingProxyType(entry.plugins),
        approvers=MappingProxyType(
            {tool: ApproverRule(**rule.model_dump()) for tool, rule in entry.approvers.items()}
        ),
        ticket_expires_in=entry.ticket_expires_in,
        on_expiry=OnExpiry(entry.on_expiry),
    )


def _options(entry: OptionsEntry) -> InferenceOptions:
    values = entry.model_dump(exclude={"thinking_budget", "fallback_upstream_models"})
    fallbacks = entry.fallback_upstream_models
    budget = entry.thinking_budget
    if budget is not None:
        values["reasoning_effort"] = ThinkingBudget(budget)
    return InferenceOptions(
        **values, fallback_upstream_models=None if fallbacks is None else tuple(fallbacks)
    )


def _retry(entry: RetryEntry) -> RetryPolicy:
    values = entry.model_dump(exclude={"fallback_upstream_models"})
    return RetryPolicy(**values, fallback_upstream_models=tuple(entry.fallback_upstream_models))
