"""AgentSpecs: what an agent is, as data that can be stored, compared and resolved later."""

from dataclasses import asdict, dataclass
from typing import Any

from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId, AgentVersion
from app.domain.json_values import JsonObject, digest


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """One agent. `approval` names the tools whose calls become tickets."""

    id: AgentId
    model: str
    system_prompt: str = ""
    description: str = ""
    tools: tuple[str, ...] = ()
    approval: tuple[str, ...] = ()
    max_rounds: int = 16

    @property
    def version(self) -> AgentVersion:
        """Changes with anything that changes how the agent behaves."""
        return AgentVersion(digest(agent_to_json(self)))


def agent_to_json(spec: AgentSpec) -> dict[str, Any]:
    return asdict(spec)


def agent_from_json(raw: JsonObject) -> AgentSpec:
    """The spec that was stored. A key that this version doesn't know can't be honoured."""
    known = AgentSpec.__dataclass_fields__
    unknown = sorted(set(raw) - set(known))
    if unknown:
        raise ConfigurationError(
            f"agent {raw.get('id')!r} was stored with {unknown}, which this version can't honour"
        )
    body = dict(raw)
    for name in ("tools", "approval"):
        body[name] = tuple(body.get(name, ()))
    return AgentSpec(**body)
