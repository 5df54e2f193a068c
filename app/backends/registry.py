"""The backends, by the names that agents files use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.backends.base import Backend, Factory
from app.domain.agents.capabilities import REMOTE_STATELESS_TEXT, Capabilities
from app.domain.agents.endpoints import Endpoint, endpoint_to_json
from app.domain.json_values import canonical
from app.domain.suggestions import did_you_mean


def target_of(endpoint: Endpoint) -> str:
    """The name of the remote agent in events and in the state of its runs."""
    named = "" if endpoint.target is None else f"#{endpoint.target}"
    return f"{endpoint.backend}:{endpoint.url}{named}"


@dataclass(slots=True)
class Backends:
    """Factories by name, and the backends that they built, one for each endpoint."""

    factories: Mapping[str, Factory]
    environment: Mapping[str, str]
    _built: dict[str, Backend] = field(default_factory=dict)

    def option_errors(self, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        factory = self.factories.get(endpoint.backend)
        if factory is None:
            known = did_you_mean(endpoint.backend, self.factories)
            return [("backend", f"there is no backend {endpoint.backend!r}; {known}")]
        return factory.option_errors(endpoint)

    def problem(self, endpoint: Endpoint) -> str | None:
        factory = self.factories.get(endpoint.backend)
        if factory is None:
            return f"there is no backend {endpoint.backend!r} any more"
        if endpoint.auth_env is not None and not self.environment.get(endpoint.auth_env):
            return f"the environment variable {endpoint.auth_env} isn't set"
        return factory.problem(endpoint, self.environment)

    def capabilities(self, endpoint: Endpoint) -> Capabilities:
        factory = self.factories.get(endpoint.backend)
        return REMOTE_STATELESS_TEXT if factory is None else factory.capabilities

    def of(self, endpoint: Endpoint) -> Backend:
        """Return the backend of this endpoint. Call it only if `problem` returned None."""
        key = canonical(endpoint_to_json(endpoint))
        if key not in self._built:
            self._built[key] = self.factories[endpoint.backend].build(endpoint, self.environment)
        return self._built[key]

    async def aclose(self) -> None:
        for backend in self._built.values():
            await backend.aclose()
