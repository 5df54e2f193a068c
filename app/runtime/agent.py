"""Agents that can run: by our own loop, or where they live; and how one is found."""

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
    """A spec whose every name stands for something that is there. `tools` has the spec's, in its order,
    and then those that plugins bring."""

    spec: AgentSpec
    model: LanguageModel
    tools: Mapping[str, Tool]
    plugins: PluginSet = NO_PLUGINS
    summarizer: LanguageModel | None = None
    """Who summarises old messages, where that is wanted."""
    is_placeholder: bool = False
    """It stands for an agent whose code isn't here: its plugins aren't asked."""

    @property
    def capabilities(self) -> Capabilities:
        """Our own loop can do everything."""
        return FULL


@dataclass(frozen=True, slots=True)
class UnknownAgentVersion:
    """The spec can't be honoured as it is; running something like it instead is not an option."""

    reason: str


@dataclass(frozen=True, slots=True)
class RemoteAgent:
    """An agent behind an endpoint: it is executed there, and nothing of it is known but its spec."""

    spec: AgentSpec
    capabilities: Capabilities

    @property
    def tools(self) -> Mapping[str, Tool]:
        """It calls none of ours."""
        return {}


Found: TypeAlias = ResolvedAgent | RemoteAgent | UnknownAgentVersion


class _NoModel:
    """Asked for nothing: whoever has it says no more."""

    name = "none"

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[ModelChunk]]]:
        raise AssertionError("a run without its agent asks no model")


def placeholder_agent(agent_id: AgentId) -> ResolvedAgent:
    """What stands for an agent that can't be had, at the end of a run that needs it no more."""
    spec = AgentSpec(id=agent_id, model="none")
    return ResolvedAgent(spec=spec, model=_NoModel(), tools={}, is_placeholder=True)


class Agents(Protocol):
    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> Found:
        """The agent exactly as it was, or as it is now when no version is asked for."""
