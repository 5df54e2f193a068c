"""Resolved agents: executed by the loop or by a remote server; and the protocol that finds them."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from msgspec import Struct

from app.domain.agents.capabilities import FULL, Capabilities
from app.domain.agents.specs import AgentSpec
from app.domain.deps import NO_DEPS, Deps
from app.domain.ids import AgentId, AgentVersion
from app.runtime.plugins import NO_PLUGINS, PluginSet
from app.runtime.ports.models import LanguageModel, ModelChunk, ModelRequest
from app.runtime.ports.outputs import OutputFormat
from app.runtime.ports.prices import NO_PRICES, Prices
from app.runtime.ports.tools import Tool
from app.runtime.tool_search.search_tool import ToolSearch


class ResolvedAgent(Struct, frozen=True, kw_only=True):
    """A spec whose model, tools and plugins all exist. `tools` has the spec's tools in its order, then those
    of plugins."""

    spec: AgentSpec
    model: LanguageModel
    tools: Mapping[str, Tool]
    plugins: PluginSet = NO_PLUGINS
    summarizer: LanguageModel | None = None
    """The model that summarises old messages, if compaction is on."""
    output: OutputFormat | None = None
    """The format of final answers: the run's own, or else the agent's."""
    prices: Prices = NO_PRICES
    summarizer_prices: Prices = NO_PRICES
    deps: Deps = NO_DEPS
    """What this process opened for its tools and plugins."""
    tool_search: ToolSearch | None = None
    """If it has many tools: the search tool, which is one of `tools`, and those that it finds."""
    is_placeholder: bool = False
    """Whether it replaces an agent whose code isn't loaded. Its hooks are not called then."""

    @property
    def hideable_tools(self) -> Collection[str]:
        """The names of the tools that rules are about: all but the search tool."""
        if self.tool_search is None:
            return self.tools.keys()
        return self.tools.keys() - {self.tool_search.name}

    @property
    def capabilities(self) -> Capabilities:
        """The loop supports everything."""
        return FULL


class UnknownAgentVersion(Struct, frozen=True):
    """The agent's exact version isn't available here, and no other version may replace it."""

    reason: str


class RemoteAgent(Struct, frozen=True):
    """An agent behind an endpoint, which executes it; only its spec is known here."""

    spec: AgentSpec
    capabilities: Capabilities

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Empty: a remote agent calls no local tools."""
        return {}


AgentLookup: TypeAlias = ResolvedAgent | RemoteAgent | UnknownAgentVersion


class _NoModel:
    """A model that must never be called."""

    name = "none"

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[ModelChunk]]]:
        raise AssertionError("a run without its agent asks no model")


def placeholder_agent(agent_id: AgentId) -> ResolvedAgent:
    """Return a replacement for an unavailable agent, for a run that ends without asking a model."""
    spec = AgentSpec(id=agent_id, model="none")
    return ResolvedAgent(spec=spec, model=_NoModel(), tools={}, is_placeholder=True)


class Agents(Protocol):
    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> AgentLookup:
        """The agent at exactly this version; the current one if `version` is None."""
