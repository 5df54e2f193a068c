"""A route that answers requests without the framework's own handler, which costs several times as much."""

import inspect
from typing import Any, Self, get_type_hints

from fastapi import Request, Response
from fastapi._compat import ModelField
from fastapi.dependencies.utils import request_body_to_args
from fastapi.exceptions import RequestValidationError
from fastapi.params import Form
from fastapi.routing import APIRoute, RouteContext
from msgspec import Struct
from pydantic_core import PydanticUndefined
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.http.access import Access, AuthorizedRoute, access_of
from app.http.routing.arguments import FunctionCall, Unsupported, call_of
from app.http.routing.json_body import is_json, json_body, media_type


class RouteEndpoint(Struct, frozen=True):
    """Authorizes a request, finds the arguments, and calls the route's function, which returns a response."""

    route: APIRoute
    access: Access
    call: FunctionCall
    body: ModelField | None

    @classmethod
    def of(cls, context: RouteContext) -> Self | None:
        """None for a route that only the framework can answer."""
        route = context.original_route
        if not isinstance(route, AuthorizedRoute) or not _returns_response(context.endpoint):
            return None
        body = context.body_field
        if body is not None and (
            isinstance(body.field_info, Form) or context.dependant.body_params != [body]
        ):
            return None
        try:
            return cls(route, access_of(route), call_of(context.dependant), body)
        except Unsupported:
            return None

    async def respond(self, request: Request) -> Response:
        request.state.principal = await self.access.authorize(request)
        body = PydanticUndefined if self.body is None else await _received_body(request)
        arguments, errors = await self.call.arguments(request, {})
        if self.body is not None:
            values, problems = await request_body_to_args([self.body], body, False)
            arguments.update(values)
            errors.extend(problems)
        if errors:
            raise RequestValidationError(errors, body=None if body is PydanticUndefined else body)
        response: Response = await self.call.function(**arguments)
        return response


def _returns_response(function: Any) -> bool:
    """Whether it returns a response itself, so that nothing has to be validated or encoded."""
    returned = get_type_hints(function).get("return")
    return inspect.isclass(returned) and issubclass(returned, Response)


async def _received_body(request: Request) -> Any:
    """The body as JSON, or as bytes if it is declared as something else."""
    try:
        content = await request.body()
        if not content:
            return PydanticUndefined
        return (await json_body(request)).value if is_json(media_type(request)) else content
    except (ValueError, RecursionError, ClientDisconnect) as error:
        raise HTTPException(400) from error
