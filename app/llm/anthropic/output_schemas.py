"""JSON Schemas as Anthropic's structured output accepts them: a subset, with the rest as descriptions."""

from collections.abc import Mapping
from typing import Any

from app.domain.json_values import JsonObject, with_sorted_keys

_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email"} | {"hostname", "uri", "ipv4", "ipv6", "uuid"}
)
_DROPPED = frozenset({"title", "$schema"})
_VARIANTS = ("anyOf", "oneOf", "allOf")
_SCALARS = (str, int, float, bool, type(None))


def output_schema(schema: JsonObject) -> dict[str, Any]:
    """The schema in the subset. What the API doesn't know becomes a description, which the model may follow."""
    sorted_schema: Mapping[str, Any] = with_sorted_keys(schema)
    return _accepted(sorted_schema)


def _accepted(schema: Mapping[str, Any]) -> dict[str, Any]:
    rest = _unwrapped({key: value for key, value in schema.items() if key not in _DROPPED})
    accepted: dict[str, Any] = {}
    if (definitions := rest.pop("$defs", None)) is not None:
        accepted["$defs"] = {name: _accepted(each) for name, each in definitions.items()}
    if (reference := rest.pop("$ref", None)) is not None:
        return {**accepted, "$ref": reference}
    type_ = rest.pop("type", None)
    if (values := _literals(rest)) is not None:
        accepted["enum"] = values
        type_ = None
    elif not _add_variants(accepted, rest):
        if isinstance(type_, list):
            accepted["anyOf"] = [_accepted({**rest, "type": each}) for each in type_]
            rest, type_ = {}, None
        elif type_ is not None:
            accepted["type"] = type_
    description = rest.pop("description", None)
    _add_parts(accepted, rest, type_)
    if rest:
        unknown = "{" + ", ".join(f"{key}: {value}" for key, value in rest.items()) + "}"
        description = unknown if description is None else f"{description}\n\n{unknown}"
    return accepted if description is None else {**accepted, "description": description}


def _unwrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without a choice that has one member only, whose fields become its own."""
    if "type" in schema:
        return schema
    for key in _VARIANTS:
        match schema.get(key):
            case [Mapping() as member]:
                rest = {name: value for name, value in schema.items() if name != key}
                own = {name: value for name, value in member.items() if name not in _DROPPED}
                return _unwrapped({**own, **rest})
            case _:
                pass
    return schema


def _literals(rest: dict[str, Any]) -> list[Any] | None:
    """The values of an `enum` or a `const`, which are taken out."""
    values = rest.get("enum")
    if isinstance(values, list) and values and all(isinstance(each, _SCALARS) for each in values):
        rest.pop("enum")
        return values
    if "const" in rest and isinstance(rest["const"], _SCALARS):
        return [rest.pop("const")]
    return None


def _add_variants(accepted: dict[str, Any], rest: dict[str, Any]) -> bool:
    """Add the first of `anyOf`, `oneOf` and `allOf`; the API has no `oneOf`."""
    found = [(key, rest.pop(key, None)) for key in _VARIANTS]
    for key, variants in found:
        if isinstance(variants, list):
            name = "allOf" if key == "allOf" else "anyOf"
            accepted[name] = [_accepted(each) for each in variants]
            return True
    return False


def _add_parts(accepted: dict[str, Any], rest: dict[str, Any], type_: Any) -> None:
    match type_:
        case "object":
            properties = rest.pop("properties", {})
            accepted["properties"] = {key: _accepted(each) for key, each in properties.items()}
            rest.pop("additionalProperties", None)
            accepted["additionalProperties"] = False
            if (required := rest.pop("required", None)) is not None:
                accepted["required"] = required
        case "string" if rest.get("format") in _FORMATS:
            accepted["format"] = rest.pop("format")
        case "array":
            if isinstance(items := rest.pop("items", None), Mapping):
                accepted["items"] = _accepted(items)
            if rest.get("minItems") in (0, 1):
                accepted["minItems"] = rest.pop("minItems")
        case _:
            pass
