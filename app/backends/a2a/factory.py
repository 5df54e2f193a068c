"""A2A: remote agents that speak the Agent2Agent protocol.

Checks the options of their endpoints and builds their backends. The protocol's library is an extra of this
package; it is imported for the first agent that needs it.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from app.backends.a2a.options import CAPABILITIES, A2AOptions
from app.backends.base import Backend
from app.domain.agents.capabilities import Capabilities
from app.domain.agents.endpoints import Endpoint


class A2AFactory:
    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    def option_errors(self, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        return A2AOptions.errors_of(endpoint)

    def problem(self, endpoint: Endpoint, environment: Mapping[str, str]) -> str | None:
        if find_spec("a2a") is None:
            return "A2A agents need the extra `a2a`: pip install 'holdfast-server[a2a]'"
        return None

    def build(self, endpoint: Endpoint, environment: Mapping[str, str]) -> Backend:
        token = None if endpoint.auth_env is None else environment[endpoint.auth_env]
        options = A2AOptions.of(endpoint)
        from app.backends.a2a.client import A2ABackend  # noqa: PLC0415  needs the extra

        return A2ABackend(endpoint, options, token)
