"""Structured output: the JSON Schema of an agent's or a run's final answer, and how a model is asked for it."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from app.domain.json_values import JsonObject

MAX_RETRIES = 10
OUTPUT_INVALID = "output_invalid"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class OutputMode(StrEnum):
    """How a model is asked for its final answer."""

    AUTO = "auto"
    """Native, if the model's provider supports it together with the agent's tools, else as a tool."""
    NATIVE = "native"
    """The provider gets the schema, and writes only JSON that fits, as far as it supports the schema."""
    TOOL = "tool"
    """The model calls a tool with its answer. The call is never executed, and ends the run."""
    PROMPTED = "prompted"
    """The system prompt has the schema."""


class OutputSpec(Struct, frozen=True, kw_only=True):
    """What the final answer has to be. `retries` counts how often the model may correct it."""

    schema: JsonObject
    name: str = "final_answer"
    mode: OutputMode = OutputMode.AUTO
    retries: int = 2
    strict: bool = False
    """Whether the provider has to keep to the whole schema. It refuses schemas that it can't keep to."""


def output_to_json(spec: OutputSpec) -> dict[str, Any]:
    return {
        "schema": spec.schema,
        "name": spec.name,
        "mode": spec.mode.value,
        "retries": spec.retries,
        "strict": spec.strict,
    }


def output_from_json(raw: JsonObject) -> OutputSpec:
    return OutputSpec(**{**raw, "mode": OutputMode(raw["mode"])})


def problem_of_output(schema: JsonObject, name: str, *, strict: bool) -> str | None:
    """Return why a final answer can't be asked for like this, or None. Whether the schema is valid is not checked."""
    if not _NAME.fullmatch(name):
        return "name must have 1 to 64 letters, digits, underscores or hyphens"
    if schema.get("type") != "object":
        return (
            'schema must describe an object: "type": "object"; put a list or a text into a property'
        )
    if strict and (place := _place_that_is_not_strict(schema, "schema")) is not None:
        return (
            f'strict needs "additionalProperties": false and all properties in "required", which {place}'
            " hasn't; add them or leave strict out"
        )
    return None


def _place_that_is_not_strict(schema: Any, place: str) -> str | None:
    """The first object in the schema that has optional or additional properties."""
    if isinstance(schema, list):
        parts = [(f"{place}[{n}]", part) for n, part in enumerate(schema)]
        return _first_not_strict(parts)
    if not isinstance(schema, Mapping):
        return None
    properties = schema.get("properties")
    is_object = schema.get("type") == "object" or isinstance(properties, Mapping)
    if is_object:
        required = schema.get("required")
        named = set(required) if isinstance(required, list) else set[Any]()
        names = set(properties) if isinstance(properties, Mapping) else set[str]()
        if schema.get("additionalProperties") is not False or named != names:
            return place
    parts = []
    for key, part in schema.items():
        if key in ("properties", "$defs", "definitions") and isinstance(part, Mapping):
            parts += [(f"{place}.{key}.{name}", each) for name, each in part.items()]
        elif key in ("items", "anyOf", "prefixItems"):
            parts.append((f"{place}.{key}", part))
    return _first_not_strict(parts)


def _first_not_strict(parts: list[tuple[str, Any]]) -> str | None:
    places = (_place_that_is_not_strict(part, place) for place, part in parts)
    return next((place for place in places if place is not None), None)
