"""JSON Schemas of tools and answers as the Gemini API takes them: a subset, with formats as descriptions."""

from collections.abc import Mapping
from typing import Any

from app.domain.json_values import JsonObject

_DROPPED = frozenset(
    {"$schema", "title", "discriminator", "examples", "exclusiveMinimum", "exclusiveMaximum"}
)
_VARIANTS = ("allOf", "anyOf", "oneOf")
_TYPES_OF_VALUES: tuple[tuple[type, str], ...] = (
    (str, "string"),
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
)
"""The first match counts: True is an int, too."""


def accepted_schema(schema: JsonObject) -> dict[str, Any]:
    """The schema without what the API doesn't know."""
    accepted = _accepted({key: value for key, value in schema.items() if key != "$defs"})
    definitions = schema.get("$defs")
    if isinstance(definitions, Mapping) and definitions:
        accepted["$defs"] = {name: _accepted_or_bool(each) for name, each in definitions.items()}
    return accepted


def _accepted_or_bool(schema: Any) -> Any:
    return _accepted(schema) if isinstance(schema, Mapping) else schema


def _accepted(schema: Mapping[str, Any]) -> dict[str, Any]:
    accepted = _with_accepted_parts(dict(schema))
    accepted = {key: value for key, value in accepted.items() if key not in _DROPPED}
    if (value := accepted.pop("const", None)) is not None:
        accepted["enum"] = [value]
        for type_, name in _TYPES_OF_VALUES:
            if isinstance(value, type_):
                accepted.setdefault("type", name)
                break
    accepted = _with_one_enum(accepted)
    if accepted.get("type") == "string" and (format_ := accepted.pop("format", None)):
        description = accepted.get("description")
        accepted["description"] = (
            f"{description} (format: {format_})" if description else f"Format: {format_}"
        )
    return accepted


def _with_accepted_parts(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, whose parts are in the subset."""
    type_ = schema.get("type")
    if type_ == "object":
        for key in ("properties", "patternProperties"):
            if isinstance(parts := schema.get(key), Mapping):
                schema[key] = {name: _accepted_or_bool(each) for name, each in parts.items()}
        if "additionalProperties" in schema:
            schema["additionalProperties"] = _accepted_or_bool(schema["additionalProperties"])
    elif type_ == "array":
        for key in ("items", "prefixItems"):
            match schema.get(key):
                case list() as parts:
                    schema[key] = [_accepted_or_bool(each) for each in parts]
                case Mapping() as part:
                    schema[key] = _accepted(part)
                case _:
                    pass
    for key in _VARIANTS:
        if isinstance(variants := schema.get(key), list):
            members = [_accepted_or_bool(each) for each in variants]
            match members:
                case [Mapping() as only] if type_ is None and only.get("not") != {}:
                    # The fields of a choice's only member become its own.
                    rest = {name: value for name, value in schema.items() if name != key}
                    schema = {**only, **rest}
                case _:
                    schema[key] = members
    return schema


def _with_one_enum(schema: dict[str, Any]) -> dict[str, Any]:
    """Values that are described one by one become one `enum`, which the API enforces better."""
    options = schema.get("anyOf")
    if not isinstance(options, list) or not options or "enum" in schema:
        return schema
    for option in options:
        is_described = isinstance(option, Mapping) and option.keys() <= {
            *("enum", "type", "description")
        }
        if not is_described or len(option.get("enum") or ()) != 1:
            return schema
    types = {option.get("type") for option in options}
    [type_, *others] = types
    if others or schema.get("type", type_) != type_:
        return schema
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    rest["enum"] = [option["enum"][0] for option in options]
    if type_ is not None:
        rest["type"] = type_
    described = [
        f"{option['enum'][0]}: {option['description']}"
        for option in options
        if option.get("description")
    ]
    if described:
        rest["description"] = "\n".join(filter(None, [rest.get("description"), *described]))
    return rest
