"""Kinds of plugins: their names in an agents file, their configuration, and how they are built."""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct
from pydantic import BaseModel, ConfigDict

from app.domain.agents.specs import AgentSpec
from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.plugins import Plugin


class PluginConfig(BaseModel):
    """A plugin's table in an agents file. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @property
    def models(self) -> Mapping[str, str]:
        """The names of models that the plugin needs, by their keys."""
        return {}


C = TypeVar("C", bound=PluginConfig)


class ConfigProblem(Struct, frozen=True):
    """What is wrong with a plugin's table: a key such as `rules[0].tool`, and a sentence with the remedy."""

    key: str
    sentence: str


def _no_problems(
    _spec: AgentSpec, _config: object, _tools: Mapping[str, ToolDescriptor]
) -> Iterable[ConfigProblem]:
    return ()


class PluginKind(Struct, Generic[C], frozen=True, kw_only=True):
    """`[agents.<agent>.plugins.<name>]` with the keys of `config`."""

    name: str
    config: type[C]
    build: Callable[[AgentSpec, C], Plugin]
    check: Callable[[AgentSpec, C, Mapping[str, ToolDescriptor]], Iterable[ConfigProblem]] = (
        _no_problems
    )
    """Finds what is wrong with the table, given all tools that the agent may call. Called when a file is loaded."""

    def plugin_for(self, spec: AgentSpec, table: Mapping[str, object]) -> Plugin:
        """Build the plugin for one agent. The table was checked before."""
        return self.build(spec, self.config.model_validate(table))

    def problems(
        self,
        spec: AgentSpec,
        table: Mapping[str, object],
        tools: Mapping[str, ToolDescriptor],
    ) -> Iterable[ConfigProblem]:
        """Check the table against the agent's tools. Its shape was checked before."""
        return self.check(spec, self.config.model_validate(table), tools)
