"""What the framework doesn't write into the OpenAPI document: security, operation ids, names."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any

from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.requests import Request

from app.domain.json_values import compact

STREAM_TOKEN = "stream_token"

_API_KEY = "api_key"
_SCHEMES = {
    _API_KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key of this server. A server without keys needs none, and accepts only "
        "programs on its own machine.",
    },
    STREAM_TOKEN: {
        "type": "apiKey",
        "in": "query",
        "name": STREAM_TOKEN,
        "description": "A token from POST /v1/stream-tokens. It opens one stream.",
    },
}


class OpenAPIDocument:
    """The document as a response. Few clients ask for it, and it takes half a second, so the first one waits."""

    def __init__(self, build: Callable[[], Mapping[str, Any]]) -> None:
        self._build = build
        self._lock = Lock()
        self._body: bytes | None = None

    def respond(self, _: Request) -> Response:
        """Runs in a thread, so that other requests don't wait."""
        with self._lock:
            if self._body is None:
                self._body = compact(self._build()).encode()
        return Response(self._body, media_type="application/json")


def operation_id(route: APIRoute) -> str:
    """The route's function name in camelCase: `start_run` becomes `startRun`."""
    first, *others = route.name.split("_")
    return first + "".join(word.capitalize() for word in others)


def declare_security(document: dict[str, Any], *, is_keyless: bool) -> None:
    """Add to each operation the alternatives of authentication; `{}` means none is needed."""
    document["components"]["securitySchemes"] = _SCHEMES
    for path, operations in document["paths"].items():
        if path.startswith("/v1/"):
            for operation in operations.values():
                operation["security"] = _alternatives(operation, is_keyless)


def _alternatives(operation: Mapping[str, Any], is_keyless: bool) -> list[dict[str, list[str]]]:
    alternatives: list[dict[str, list[str]]] = [{_API_KEY: []}]
    if any(parameter["name"] == STREAM_TOKEN for parameter in operation.get("parameters", ())):
        alternatives.append({STREAM_TOKEN: []})
    if is_keyless:
        alternatives.append({})
    return alternatives


def declare_descriptions(document: dict[str, Any], descriptions: Mapping[str, str]) -> None:
    """Describe properties and parameters that have no description, by `Schema.name` or by name."""
    for schema, name, described in _properties(document):
        found = descriptions.get(f"{schema}.{name}") or descriptions.get(name)
        if "description" not in described and found is not None:
            described["description"] = found


def _properties(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    yield from _schema_properties(document)
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                yield "", parameter["name"], parameter


def _schema_properties(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for schema, body in document["components"]["schemas"].items():
        for name, described in body.get("properties", {}).items():
            yield schema, name, described


def rename_schemas(document: dict[str, Any]) -> None:
    """Give schemas the names that clients generate types from: `RunOut` is `Run`, `StartIn` is
    `StartRequest`, `Page_RunOut_` is `RunPage`. A name that is taken stays as it is."""
    schemas = document["components"]["schemas"]
    names = {name: _public_name(name) for name in schemas}
    taken = set(schemas)
    renamed = {old: new for old, new in names.items() if new != old and new not in taken}
    document["components"]["schemas"] = {
        renamed.get(name, name): _titled(body, renamed.get(name)) for name, body in schemas.items()
    }
    _rename_references(
        document, {f"{_REFERENCE}{old}": f"{_REFERENCE}{new}" for old, new in renamed.items()}
    )


def simplify_properties(document: dict[str, Any]) -> None:
    """Write properties so that generators of clients make plain types of them.

    An enumeration is a schema of its own, because generators would number inline ones. A nullable
    type is a list of types, because generators would make a class of `anyOf`. A default is in the
    description, because generators would require a field that has `default`.
    """
    schemas = document["components"]["schemas"]
    names = {frozenset(body["enum"]): name for name, body in schemas.items() if "enum" in body}
    for schema, name, described in list(_schema_properties(document)):
        title = schema.removesuffix("Request") + "".join(map(str.capitalize, name.split("_")))
        _refer_to_enums(described, title, names, schemas)
        _flatten_null(described)
        _describe_default(described)


def _refer_to_enums(
    described: dict[str, Any],
    title: str,
    names: dict[frozenset[str], str],
    schemas: dict[str, Any],
) -> None:
    """Replace an inline enumeration by a reference. The values decide which schema it is."""
    for one in (described, *described.get("anyOf", ())):
        if len(one.get("enum", ())) > 1:
            values = {"type": one.pop("type"), "enum": one.pop("enum")}
            name = names.setdefault(frozenset(values["enum"]), title)
            schemas.setdefault(name, {"title": name, **values})
            one["$ref"] = f"{_REFERENCE}{name}"


def _flatten_null(described: dict[str, Any]) -> None:
    match described.get("anyOf"):
        case [{"type": str(kind)} as one, {"type": "null"}] if "const" not in one:
            del described["anyOf"]
            described.update(one)
            described["type"] = [kind, "null"]


def _describe_default(described: dict[str, Any]) -> None:
    default = described.pop("default", None)
    if default not in (None, "", [], {}):
        described["description"] += f" Default: `{json.dumps(default).strip(chr(34))}`."


_REFERENCE = "#/components/schemas/"


def _public_name(name: str) -> str:
    name = re.sub(r"^Page_(\w+?)(?:Out)?_$", r"\1Page", name)
    return re.sub(r"In$", "Request", re.sub(r"Out$", "", name))


def _titled(schema: dict[str, Any], title: str | None) -> dict[str, Any]:
    return schema if title is None else {**schema, "title": title}


def _rename_references(value: Any, renamed: Mapping[str, str]) -> None:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            value["$ref"] = renamed.get(value["$ref"], value["$ref"])
        for item in value.values():
            _rename_references(item, renamed)
    elif isinstance(value, list):
        for item in value:
            _rename_references(item, renamed)
