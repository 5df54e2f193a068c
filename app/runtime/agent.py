"""ResolvedAgent: an agent that can run."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.domain.agents import AgentSpec
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
