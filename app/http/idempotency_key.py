"""Idempotency-Key: how it is read, and how a stored response is sent again."""

import json
from typing import Annotated

from fastapi import Depends, FastAPI, Header, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.domain.errors import AlreadyAnswered, Invalid
from app.domain.idempotency import IdempotencyKey
from app.domain.json_values import digest

REPLAYED_HEADER = {"Idempotency-Replayed": "true"}

_PARAMETERS_WITHOUT_EFFECT = frozenset({"follow", "wait"})


async def _key(
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            min_length=1,
            max_length=255,
            pattern=r"^[ -~]+$",
            description="Requests with the same key take effect once and get the same response.",
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
    """Whether the route supports Idempotency-Key."""
    route = request.scope.get("route")
    return isinstance(route, APIRoute) and _reads_key(route.dependant)


def _reads_key(dependant: Dependant) -> bool:
    return any(each.call is _key or _reads_key(each) for each in dependant.dependencies)


async def _fingerprint(request: Request) -> str:
    """Equal for equal requests, also if their fields are in another order."""
    body = await request.body()
    query = [
        one
        for one in request.query_params.multi_items()
        if one[0] not in _PARAMETERS_WITHOUT_EFFECT
    ]
    try:
        return digest([request.path_params, sorted(query), json.loads(body) if body else None])
    except (ValueError, RecursionError) as error:
        raise Invalid(
            "invalid_request", "The body isn't valid JSON, or is nested too deeply."
        ) from error


def install(app: FastAPI) -> None:
    """Answer a repeated request with the stored response."""
    app.add_exception_handler(AlreadyAnswered, _stored_response)


async def _stored_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, AlreadyAnswered)
    answer = error.answer
    location = {} if answer.location is None else {"Location": answer.location}
    return Response(
        answer.body,
        status_code=answer.status,
        media_type="application/json",
        headers={**REPLAYED_HEADER, **location},
    )
