"""Resolved agents: executed by the loop or by a remote server; and the protocol that finds them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from app.domain.agents.capabilities import FULL, Capabilities
from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId, AgentVersion
from app.runtime.plugins import NO_PLUGINS, PluginSet
from app.runtime.ports import LanguageModel, ModelChunk, ModelRequest, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedAgent:
    """A spec whose model, tools and plugins all exist. `tools` has the spec's tools in its order, then those
    of plugins."""

    spec: AgentSpec
    model: LanguageModel
    tools: Mapping[str, Tool]
    plugins: PluginSet = NO_PLUGINS
    summarizer: LanguageModel | None = None
    """The model that summarises old messages, if compaction is on."""
    is_placeholder: bool = False
    """Whether it stands for an agent whose code isn't loaded; then no hooks are called."""

    @property
    def capabilities(self) -> Capabilities:
        """The loop supports everything."""
        return FULL


@dataclass(frozen=True, slots=True)
class UnknownAgentVersion:
    """The agent's exact version isn't available here, and no other version may replace it."""

    reason: str


@dataclass(frozen=True, slots=True)
class RemoteAgent:
    """An agent behind an endpoint, which executes it; only its spec is known here."""

    spec: AgentSpec
    capabilities: Capabilities

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Empty: a remote agent calls no local tools."""
        return {}


Found: TypeAlias = ResolvedAgent | RemoteAgent | UnknownAgentVersion


class _NoModel:
    """A model that must never be called."""

    name = "none"

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[ModelChunk]]]:
        raise AssertionError("a run without its agent asks no model")


def placeholder_agent(agent_id: AgentId) -> ResolvedAgent:
    """Stands for an unavailable agent when its run ends without asking a model."""
    spec = AgentSpec(id=agent_id, model="none")
    return ResolvedAgent(spec=spec, model=_NoModel(), tools={}, is_placeholder=True)


class Agents(Protocol):
    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> Found:
        """The agent at exactly this version; the current one if `version` is None."""
