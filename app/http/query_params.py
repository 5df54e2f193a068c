"""Query parameters. A route refuses those that it doesn't declare."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.params import Param
from fastapi.routing import APIRoute

from app.domain.errors import Invalid
from app.domain.spelling import closest_name

_MAX_NAME_LENGTH = 100
_MAX_NAMES = 20


class PrefixedQuery:
    """A dependency: all parameters with a prefix, such as `metadata.KEY=TEXT`, by the rest of their names."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    async def __call__(self, request: Request) -> dict[str, str]:
        found = {
            name.removeprefix(self.prefix): value
            for name, value in sorted(request.query_params.items())
            if name.startswith(self.prefix)
        }
        if "\0" in "".join([*found, *found.values()]):
            raise Invalid("invalid_request", f"query.{self.prefix}: contains the character U+0000.")
        return found


def in_event_loop(parameters: type) -> Any:
    """A dependency on a class that declares parameters.

    The framework would make an instance in a thread, which takes ten times as long.
    """

    async def instance(**values: Any) -> Any:
        return parameters(**values)

    instance.__signature__ = inspect.signature(parameters)  # type: ignore[attr-defined]
    return Depends(instance)


def listed_names(parameter: str, text: str, known: Sequence[str]) -> frozenset[str]:
    """The names in a parameter that takes several, separated by commas. Refuses those that aren't known."""
    names = frozenset(name.strip() for name in text.split(",")) - {""}
    unknown = sorted(names.difference(known))
    if unknown:
        errors = [
            {"at": f"query.{parameter}", "problem": _unknown_value(name, known)}
            for name in unknown[:_MAX_NAMES]
        ]
        takes = f"This parameter takes {', '.join(known)}, separated by commas."
        detail = f"query.{parameter}: {errors[0]['problem']} {takes}"
        raise Invalid("invalid_request", detail, errors=errors)
    return names


def _unknown_value(name: str, known: Sequence[str]) -> str:
    meant = closest_name(name, known)
    return f"unknown value {name!r}" + ("." if meant is None else f"; did you mean {meant}?")


async def require_known_query(request: Request) -> None:
    """Refuses unknown parameters. If a misspelt filter were ignored, a list would return everything."""
    route = request.scope["route"]
    if not request.scope["query_string"] or not isinstance(route, APIRoute):
        return
    known = dict(_declared(route.dependant))
    prefixes = tuple(name for name in known if name.endswith("."))
    unknown = [
        name[:_MAX_NAME_LENGTH]
        for name in request.query_params
        if name not in known and not name.startswith(prefixes)
    ]
    if unknown:
        shown = [name + "KEY" * (name in prefixes) for name in known if known[name]]
        errors = [
            {"at": f"query.{name}", "problem": _sentence(name, shown if index == 0 else ())}
            for index, name in enumerate(unknown[:_MAX_NAMES])
        ]
        takes = f"This operation takes {', '.join(shown) or 'none'}."
        detail = f"{errors[0]['at']}: {errors[0]['problem']} {takes}"
        raise Invalid("invalid_request", detail, errors=errors)


def _sentence(name: str, known: Sequence[str]) -> str:
    meant = closest_name(name, known)
    return "unknown parameter." if meant is None else f"unknown parameter; did you mean {meant}?"


def _declared(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Names of the parameters of a route and its dependencies, and whether the document shows them."""
    for field in dependant.query_params:
        info = field.field_info
        yield field.alias, isinstance(info, Param) and info.include_in_schema
    if isinstance(dependant.call, PrefixedQuery):
        yield dependant.call.prefix, True
    for dependency in dependant.dependencies:
        yield from _declared(dependency)
