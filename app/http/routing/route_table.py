"""Finds the route of a frequent request in a table, instead of comparing its path with all routes.

Other requests, and those without a matching route, go on to the framework.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from re import Pattern
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import iter_route_contexts
from msgspec import Struct
from starlette.convertors import StringConvertor
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.routing.endpoint import RouteEndpoint

Handler = Callable[[Request, Exception], Awaitable[Response]]


class TableRow(Struct, frozen=True):
    """A route of the application. `endpoint` is None if the framework answers its requests."""

    pattern: Pattern[str]
    endpoint: RouteEndpoint | None


RouteRows = Mapping[tuple[str, int], Sequence[TableRow]]
"""The routes by method and number of segments, in the order of their declaration."""


def route_rows(app: FastAPI) -> RouteRows:
    """The routes of an application. As in the framework, the first one that matches answers."""
    rows: dict[tuple[str, int], list[TableRow]] = defaultdict(list)
    for context in iter_route_contexts(app.routes):
        converters = context.param_convertors.values()
        if not all(isinstance(converter, StringConvertor) for converter in converters):
            # A parameter of several segments: these routes share no address with others.
            continue
        row = TableRow(context.path_regex, RouteEndpoint.of(context))
        for method in context.methods or ():
            rows[method, str(context.path).count("/")].append(row)
    return dict(rows)


class RouteTable:
    def __init__(self, app: ASGIApp, rows: RouteRows, handlers: Mapping[Any, Any]) -> None:
        """`handlers` are those of the application, by the exception that they answer."""
        self._app = app
        self._rows = rows
        # The outermost middleware answers all other exceptions.
        self._handlers = {
            kind: handle for kind, handle in handlers.items() if kind is not Exception
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._find(scope)
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await endpoint.respond(request)
        except Exception as error:
            handle = self._handler_of(error)
            if handle is None:
                raise
            response = await handle(request, error)
        await response(scope, receive, send)

    def _find(self, scope: Scope) -> RouteEndpoint | None:
        if scope["type"] != "http" or scope.get("root_path"):
            return None
        path: str = scope["path"]
        for row in self._rows.get((scope["method"], path.count("/")), ()):
            found = row.pattern.match(path)
            if found is None:
                continue
            if row.endpoint is not None:
                scope["route"] = row.endpoint.route
                scope["endpoint"] = row.endpoint.route.endpoint
                scope["path_params"] = found.groupdict()
            return row.endpoint
        return None

    def _handler_of(self, error: Exception) -> Handler | None:
        kinds = type(error).__mro__
        return next((self._handlers[kind] for kind in kinds if kind in self._handlers), None)
