"""Who is let in, as the OpenAPI document says it."""

from collections.abc import Mapping
from typing import Any

STREAM_TOKEN = "stream_token"

_API_KEY = "api_key"
_SCHEMES = {
    _API_KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key of this server. A server without keys needs none: it answers to "
        "programs of its own machine only.",
    },
    STREAM_TOKEN: {
        "type": "apiKey",
        "in": "query",
        "name": STREAM_TOKEN,
        "description": "From POST /v1/stream-tokens, for one stream.",
    },
}


def declare_security(document: dict[str, Any], *, is_keyless: bool) -> None:
    """Add to each operation what opens it: any one of the list, where `{}` means nothing at all."""
    document["components"]["securitySchemes"] = _SCHEMES
    for path, operations in document["paths"].items():
        if path.startswith("/v1/"):
            for operation in operations.values():
                operation["security"] = _what_opens(operation, is_keyless)


def _what_opens(operation: Mapping[str, Any], is_keyless: bool) -> list[dict[str, list[str]]]:
    ways: list[dict[str, list[str]]] = [{_API_KEY: []}]
    if any(parameter["name"] == STREAM_TOKEN for parameter in operation.get("parameters", ())):
        ways.append({STREAM_TOKEN: []})
    if is_keyless:
        ways.append({})
    return ways
