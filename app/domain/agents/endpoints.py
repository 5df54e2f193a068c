"""Endpoints: the address of a remote agent, as part of its spec."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from app.domain.json_values import JsonObject, without_none

DEFAULT_TIMEOUT_SECONDS = 300.0


class Endpoint(Struct, frozen=True, kw_only=True):
    """`backend` names the protocol; `options` belong to that backend.

    A spec never has a secret: `auth_env` names the environment variable with the bearer token. `timeout`
    limits one turn of the remote agent, in seconds.
    """

    backend: str
    url: str
    target: str | None = None
    """The name of the agent there, if one address serves several."""
    auth_env: str | None = None
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    options: Mapping[str, Any] = MappingProxyType({})


def endpoint_to_json(endpoint: Endpoint) -> dict[str, Any]:
    body = {
        "backend": endpoint.backend,
        "url": endpoint.url,
        "target": endpoint.target,
        "auth_env": endpoint.auth_env,
        "timeout": None if endpoint.timeout == DEFAULT_TIMEOUT_SECONDS else endpoint.timeout,
        "options": dict(endpoint.options) or None,
    }
    return without_none(body)


def endpoint_from_json(raw: JsonObject) -> Endpoint:
    return Endpoint(**raw)
