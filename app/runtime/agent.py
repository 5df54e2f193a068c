"""Agents that can run: by our own loop, or where they live; and how one is found."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from app.domain.agents import AgentSpec
from app.domain.ids import AgentId, AgentVersion
from app.runtime.plugins import NO_PLUGINS, PluginSet
from app.runtime.ports import LanguageModel, Tool


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


@dataclass(frozen=True, slots=True)
class Unresolvable:
    """The spec can't be honoured as it is; running something like it instead is not an option."""

    reason: str


@dataclass(frozen=True, slots=True)
class RemoteAgent:
    """An agent behind an endpoint: it is executed there, and nothing of it is known but its spec."""

    spec: AgentSpec

    @property
    def tools(self) -> Mapping[str, Tool]:
        """It calls none of ours."""
        return {}


Found: TypeAlias = ResolvedAgent | RemoteAgent | Unresolvable


class Agents(Protocol):
    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> Found:
        """The agent exactly as it was, or as it is now when no version is asked for."""
