"""The fields that a request body has at some place, for messages about unknown ones."""

from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel

_MAX_DEPTH = 20


def known_fields(request: Request, place: Sequence[int | str]) -> list[str]:
    """Names of the fields of the object that contains this place of the body. `place` is as in a validation
    error: it begins with `body` and ends with the unknown field."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or route.body_field is None or place[:1] != ("body",):
        return []
    types = list(_members(route.body_field.field_info.annotation))
    for part in place[1:-1][:_MAX_DEPTH]:
        # A part that is no field, index or key names the member of a union.
        types = _tagged(types, part) or list(_step(types, part)) or types
    return list(dict.fromkeys(name for model in _models(types) for name, _ in _fields(model)))


def _models(types: Sequence[Any]) -> list[type[BaseModel]]:
    return [one for one in types if isinstance(one, type) and issubclass(one, BaseModel)]


def _tagged(types: Sequence[Any], part: int | str) -> list[Any]:
    """Of several models those that have this text as the value of a field, such as `type`."""
    models = _models(types)
    return [
        model
        for model in (models if len(models) > 1 else ())
        if any(get_origin(kind) is Literal and part in get_args(kind) for _, kind in _fields(model))
    ]


def _step(types: Sequence[Any], part: int | str) -> Iterator[Any]:
    for one in types:
        if isinstance(one, type) and issubclass(one, BaseModel):
            for name, annotation in _fields(one):
                if name == part:
                    yield from _members(annotation)
        elif (inner := get_args(one)) and isinstance(get_origin(one), type):
            is_index = isinstance(part, int)
            if is_index is not issubclass(get_origin(one), dict):
                yield from _members(inner[-1] if not is_index else inner[0])


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        yield field.alias or name, field.annotation


def _members(annotation: Any) -> Iterator[Any]:
    """The types that an annotation allows, without what annotates them."""
    annotation = getattr(annotation, "__value__", annotation)
    if get_origin(annotation) is Annotated:
        yield from _members(get_args(annotation)[0])
    elif isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        for one in get_args(annotation):
            yield from _members(one)
    else:
        yield annotation
