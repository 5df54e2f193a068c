"""Endpoints: where an agent lives that somebody else executes, as data of its spec."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from app.domain.json_values import JsonObject

DEFAULT_TIMEOUT = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`backend` names who knows how to talk to it; `options` are that backend's own.

    A secret is never part of a spec: `auth_env` names the environment variable that has the bearer
    token. `timeout` bounds one turn of the remote agent, in seconds.
    """

    backend: str
    url: str
    target: str | None = None
    """Which agent there, where one address has several."""
    auth_env: str | None = None
    timeout: float = DEFAULT_TIMEOUT
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def endpoint_to_json(endpoint: Endpoint) -> dict[str, Any]:
    body: dict[str, Any] = {
        "backend": endpoint.backend,
        "url": endpoint.url,
        "target": endpoint.target,
        "auth_env": endpoint.auth_env,
        "timeout": None if endpoint.timeout == DEFAULT_TIMEOUT else endpoint.timeout,
        "options": dict(endpoint.options) or None,
    }
    return {key: value for key, value in body.items() if value is not None}


def endpoint_from_json(raw: JsonObject) -> Endpoint:
    return Endpoint(**raw)
