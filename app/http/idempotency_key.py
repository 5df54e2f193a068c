"""Repetitions: the Idempotency-Key of a request, and the answer to one that was answered before."""

import json
from typing import Annotated

from fastapi import Depends, FastAPI, Header, Request, Response
from fastapi.routing import APIRoute

from app.domain.errors import AlreadyAnswered, Invalid
from app.domain.idempotency import IdempotencyKey
from app.domain.json_values import digest

REPLAYED_HEADER = {"Idempotency-Replayed": "true"}

_ONLY_A_WAY_OF_LOOKING = frozenset({"wait"})


async def _key(
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            min_length=1,
            max_length=255,
            pattern=r"^[ -~]+$",
            description="Requests under the same key have one effect, and the same answer.",
        ),
    ] = None,
) -> IdempotencyKey | None:
    if idempotency_key is None:
        return None
    return IdempotencyKey(
        route=f"{request.method} {request.scope['route'].path}",
        key=idempotency_key,
        fingerprint=await _fingerprint(request),
    )


KeyDep = Annotated[IdempotencyKey | None, Depends(_key)]


def keeps_keys(request: Request) -> bool:
    """Whether the route asks for the key."""
    route = request.scope.get("route")
    return isinstance(route, APIRoute) and any(
        dependency.call is _key for dependency in route.dependant.dependencies
    )


async def _fingerprint(request: Request) -> str:
    """The same for a repetition, whatever order its fields came in."""
    body = await request.body()
    query = [
        one for one in request.query_params.multi_items() if one[0] not in _ONLY_A_WAY_OF_LOOKING
    ]
    try:
        return digest([request.path_params, sorted(query), json.loads(body) if body else None])
    except (ValueError, RecursionError) as error:
        raise Invalid(
            "invalid_request", "The body can't be read: it is no JSON, or too deep."
        ) from error


def install(app: FastAPI) -> None:
    """Answer repetitions as they were answered first."""
    app.add_exception_handler(AlreadyAnswered, _again)


async def _again(_: Request, error: Exception) -> Response:
    assert isinstance(error, AlreadyAnswered)
    answer = error.answer
    location = {} if answer.location is None else {"Location": answer.location}
    return Response(
        answer.body,
        status_code=answer.status,
        media_type="application/json",
        headers={**REPLAYED_HEADER, **location},
    )
