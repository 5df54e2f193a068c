"""Endpoints as the agents file needs them: which there can be, and what those behind them can do.

Who talks to them lives in a layer above; this is the little that has to be known here.
"""

from collections.abc import Sequence
from typing import Protocol

from app.domain.agents.capabilities import Capabilities
from app.domain.agents.endpoints import Endpoint


class EndpointCatalog(Protocol):
    def option_errors(self, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        """Everything that is wrong with it as it is written: a key and a sentence with the remedy."""

    def problem(self, endpoint: Endpoint) -> str | None:
        """Why this process can't talk to it now, or None when it can."""

    def capabilities(self, endpoint: Endpoint) -> Capabilities:
        """What those that live there can do."""


class NoEndpoints:
    """Every agent is executed here."""

    def option_errors(self, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        return [("backend", f"there is no backend {endpoint.backend!r}; there are none")]

    def problem(self, endpoint: Endpoint) -> str | None:
        return f"there is no backend {endpoint.backend!r}"

    def capabilities(self, endpoint: Endpoint) -> Capabilities:
        return Capabilities()


NO_ENDPOINTS = NoEndpoints()
