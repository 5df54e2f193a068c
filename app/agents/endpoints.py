"""What the agents file needs to know of endpoints: which are valid, and what their backends support.

The backends themselves are in a higher layer, which implements `EndpointCatalog`.
"""

from collections.abc import Sequence
from typing import Protocol

from app.domain.agents.capabilities import Capabilities
from app.domain.agents.endpoints import Endpoint


class EndpointCatalog(Protocol):
    def option_errors(self, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        """The errors in an endpoint's options: for each a key, and a sentence with the remedy."""

    def problem(self, endpoint: Endpoint) -> str | None:
        """Return why this process can't use the endpoint now, or None."""

    def capabilities(self, endpoint: Endpoint) -> Capabilities:
        """The capabilities of the endpoint's backend."""


class NoEndpoints:
    """A catalog without backends: every agent is executed here."""

    def option_errors(self, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        return [("backend", f"there is no backend {endpoint.backend!r}; there are none")]

    def problem(self, endpoint: Endpoint) -> str | None:
        return f"there is no backend {endpoint.backend!r}"

    def capabilities(self, endpoint: Endpoint) -> Capabilities:
        return Capabilities()


NO_ENDPOINTS = NoEndpoints()
