"""The arguments of a route's function and of its dependencies.

The framework finds out for each request how each dependency is called. Here this is done once for each
route. The values, their order and the errors are those of the framework, which still validates them.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import Enum
from inspect import iscoroutinefunction
from typing import Any

from fastapi import Request
from fastapi._compat import ModelField
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from msgspec import Struct

Values = dict[str, Any]
Errors = list[Any]


class Unsupported(Exception):
    """A dependency that only the framework can call."""


class _Parameter(Struct, frozen=True):
    """A parameter of the path, the query or the headers."""

    field: ModelField
    received: Callable[[Request], Mapping[str, Any]]
    names: tuple[str, ...]
    """The names that a request may give it; empty if the framework must always look."""
    default: Any = None
    """The value if a request has none of these names."""

    def read(self, request: Request, values: Values, errors: Errors) -> None:
        received = self.received(request)
        if self.names and not any(name in received for name in self.names):
            values[self.field.name] = self.default
            return
        found, problems = request_params_to_args([self.field], received)
        values.update(found)
        errors.extend(problems)


class FunctionCall(Struct, frozen=True):
    """A function with the parameters and dependencies from which its arguments come."""

    function: Callable[..., Awaitable[Any]]
    needs: "tuple[tuple[str | None, FunctionCall], ...]"
    """Dependencies with the names of their arguments, in the order in which they are called."""
    parameters: tuple[_Parameter, ...]
    request_name: str | None

    async def arguments(
        self, request: Request, results: dict[Callable[..., Any], Any]
    ) -> tuple[Values, Errors]:
        """Call the dependencies, each at most once for a request: `results` has those that were called."""
        values: Values = {}
        errors: Errors = []
        for name, need in self.needs:
            if need.needs:
                arguments, problems = await need.arguments(request, results)
            else:
                arguments, problems = need.own_arguments(request, {}, [])
            if problems:
                errors.extend(problems)
                continue
            if need.function not in results:
                results[need.function] = await need.function(**arguments)
            if name is not None:
                values[name] = results[need.function]
        return self.own_arguments(request, values, errors)

    def own_arguments(
        self, request: Request, values: Values, errors: Errors
    ) -> tuple[Values, Errors]:
        """Add the arguments that need no dependency."""
        for parameter in self.parameters:
            parameter.read(request, values, errors)
        if self.request_name is not None:
            values[self.request_name] = request
        return values, errors


def call_of(dependant: Dependant) -> FunctionCall:
    """How to call a function that the framework has analysed. Raises Unsupported."""
    function = dependant.call
    is_simple = function is not None and _is_coroutine_function(function)
    needs_framework = (
        dependant.cookie_params,
        dependant.http_connection_param_name,
        dependant.response_param_name,
        dependant.background_tasks_param_name,
        dependant.security_scopes_param_name,
        dependant.own_oauth_scopes,
        dependant.concurrency,
        not dependant.use_cache,
    )
    if function is None or not is_simple or any(needs_framework):
        raise Unsupported(dependant.path)
    needs = tuple((need.name, call_of(need)) for need in dependant.dependencies)
    return FunctionCall(
        function, needs, tuple(_parameters(dependant)), dependant.request_param_name
    )


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004  an object with an async __call__
    return iscoroutinefunction(function) or iscoroutinefunction(called)


def _parameters(dependant: Dependant) -> Iterator[_Parameter]:
    for field in dependant.path_params:
        yield _Parameter(field, _path_params, ())
    for field in dependant.query_params:
        yield _optional(field, _query_params)
    for field in dependant.header_params:
        yield _optional(field, _headers)


def _path_params(request: Request) -> Mapping[str, Any]:
    return request.path_params


def _query_params(request: Request) -> Mapping[str, Any]:
    return request.query_params


def _headers(request: Request) -> Mapping[str, Any]:
    return request.headers


def _optional(field: ModelField, received: Callable[[Request], Mapping[str, Any]]) -> _Parameter:
    """A parameter that a request may leave out, if its default is a constant that isn't validated."""
    info = field.field_info
    is_constant = isinstance(info.default, bool | int | str | Enum | None)
    alias = info.validation_alias or field.alias
    if (
        info.default_factory
        or info.validate_default
        or not is_constant
        or not isinstance(alias, str)
    ):
        return _Parameter(field, received, ())
    given = {field.alias, field.name, alias}
    # The framework may read the header `a-b` for a parameter `a_b`.
    names = given | {name.replace("_", "-") for name in given}
    return _Parameter(field, received, tuple(names), info.default)
