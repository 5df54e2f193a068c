"""Kinds of plugins: what an agents file may name, how each is configured, and how it is made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from app.domain.agents.specs import AgentSpec
from app.runtime.plugins import Plugin


class PluginConfig(BaseModel):
    """A plugin's table in an agents file. A key that isn't known is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @property
    def models(self) -> Mapping[str, str]:
        """Models that it names, by the keys that name them."""
        return {}


C = TypeVar("C", bound=PluginConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginKind(Generic[C]):
    """`[agents.<agent>.plugins.<name>]` with the keys of `config`."""

    name: str
    config: type[C]
    build: Callable[[AgentSpec, C], Plugin]

    def made(self, spec: AgentSpec, table: Mapping[str, object]) -> Plugin:
        """The plugin as one agent has it; the table was checked before."""
        return self.build(spec, self.config.model_validate(table))
