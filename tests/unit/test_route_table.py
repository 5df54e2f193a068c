"""Routes of the table answer as the framework does."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from importlib import import_module
from pkgutil import walk_packages
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.routing import RouteContext, iter_route_contexts
from pydantic import BaseModel
from starlette.convertors import StringConvertor

import app.api
from app.api.schemas.common import Uuid
from app.domain.errors import Conflict
from app.domain.json_values import compact
from app.domain.principals import Principal
from app.http import errors
from app.http.access import AuthorizedRoute
from app.http.headers import require_readable
from app.http.query_params import require_known_query
from app.http.routing.route_table import RouteTable, route_rows
from tests.support.replicas import ANN

IN_THE_TABLE = {
    ("GET", "/v1/runs/{run_id}"),
    ("GET", "/v1/runs/{run_id}/events"),
    ("GET", "/v1/threads/{thread_id}/events"),
    ("GET", "/v1/tickets/events"),
    ("POST", "/v1/runs"),
    ("POST", "/v1/runs/{run_id}/decisions"),
}


@pytest.fixture(scope="module")
def api() -> FastAPI:
    api = FastAPI(openapi_url=None)
    for found in walk_packages(app.api.__path__, "app.api."):
        router = getattr(import_module(found.name), "router", None)
        if isinstance(router, APIRouter):
            api.include_router(router)
    return api


def plain_contexts(api: FastAPI) -> Iterator[RouteContext]:
    for context in iter_route_contexts(api.routes):
        if all(isinstance(one, StringConvertor) for one in context.param_convertors.values()):
            yield context


def test_the_table_finds_the_route_that_the_framework_finds(api: FastAPI) -> None:
    rows = route_rows(api)
    contexts = list(plain_contexts(api))
    assert len(contexts) > 80
    for context in contexts:
        path = re.sub(r"{\w+}", "x", str(context.path))
        for method in context.methods or ():
            answering = next(
                one
                for one in contexts
                if method in (one.methods or ()) and one.path_regex.match(path)
            )
            row = next(row for row in rows[method, path.count("/")] if row.pattern.match(path))
            assert row.endpoint is None or row.endpoint.route is answering.original_route


def test_the_table_has_the_routes_of_runs_streams_and_decisions(api: FastAPI) -> None:
    found = {
        (method, row.endpoint.route.path)
        for (method, _), rows in route_rows(api).items()
        for row in rows
        if row.endpoint is not None
    }
    assert found >= IN_THE_TABLE


# --- the same answers -----------------------------------------------------------------------------


class Anyone:
    async def authorize(self, request: Request) -> Principal:
        return ANN

    async def __call__(self, request: Request) -> Principal:
        principal: Principal = request.state.principal
        return principal


class Item(BaseModel):
    name: str
    amount: int = 1


async def counted(request: Request) -> int:
    request.state.calls = getattr(request.state, "calls", 0) + 1
    calls: int = request.state.calls
    return calls


Counted = Annotated[int, Depends(counted)]


async def listed(
    count: Counted,
    limit: Annotated[int, Query(ge=1)] = 20,
    tag: Annotated[list[str] | None, Query()] = None,
    if_match: Annotated[str | None, Header()] = None,
) -> list[Any]:
    if limit == 13:
        raise Conflict("thread_busy", "No.")
    return [count, limit, tag, if_match]


router = APIRouter(route_class=AuthorizedRoute)
Listed = Annotated[list[Any], Depends(listed)]
Who = Annotated[Principal, Depends(Anyone())]


@router.post("/things/{thing_id}")
async def change(
    thing_id: Uuid,
    item: Item,
    request: Request,
    who: Who,
    found: Listed,
    count: Counted,
    note: Annotated[str | None, Header(alias="X-Note", max_length=5)] = None,
    follow: bool = False,
) -> Response:
    answer = [thing_id, item.model_dump(), who.tenant, found, count, note, follow]
    return Response(compact([*answer, request.scope["path_params"]]))


def served(*, with_table: bool) -> httpx.AsyncClient:
    api = FastAPI(openapi_url=None, redirect_slashes=False)
    errors.install(api)
    checks = [Depends(require_readable), Depends(require_known_query)]
    api.include_router(router, dependencies=checks)
    if with_table:
        api.add_middleware(RouteTable, rows=route_rows(api), handlers=api.exception_handlers)
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://test")


@pytest.fixture(scope="module")
async def clients() -> AsyncIterator[list[httpx.AsyncClient]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(served(with_table=with_table))
            for with_table in (False, True)
        ]


ID = "0195f3a1-0000-7000-8000-000000000001"
JSON = {"content-type": "application/json"}
GOOD = b'{"name": "a", "amount": 2}'


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("target", "headers", "body", "status"),
    [
        (f"/things/{ID}", JSON, GOOD, 200),
        (f"/things/{ID}?follow=1&limit=5&tag=a&tag=b", JSON | {"If-Match": "3"}, GOOD, 200),
        (f"/things/{ID}", {"content-type": "application/merge+json; a=b"}, GOOD, 200),
        (f"/things/{ID}", JSON | {"x-note": "abc"}, GOOD, 200),
        (f"/things/{ID}", JSON | {"x-note": "abcdef"}, GOOD, 422),
        ("/things/x", JSON, GOOD, 422),
        ("/things/x?limit=0&follow=maybe", JSON | {"x-note": "abcdef"}, b'{"amount": "x"}', 422),
        (f"/things/{ID}?limit=13", JSON, b"[]", 409),
        (f"/things/{ID}?unknown=1", JSON, GOOD, 422),
        (f"/things/{ID}", JSON, b"", 422),
        (f"/things/{ID}", JSON, b"{", 400),
        (f"/things/{ID}", JSON, b'{"name": "\xff"}', 400),
        (f"/things/{ID}", JSON, b"[" * 100_000, 400),
        (f"/things/{ID}", JSON, b'{"name": "a", "name": "b"}', 400),
        (f"/things/{ID}", {"content-type": "text/plain"}, GOOD, 415),
        (f"/things/{ID}", {}, GOOD, 415),
        (f"/things/{ID}/", JSON, GOOD, 404),
        ("/things", JSON, GOOD, 404),
    ],
)
async def test_a_route_of_the_table_answers_as_the_framework(
    clients: list[httpx.AsyncClient], target: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    answers = [await client.post(target, headers=headers, content=body) for client in clients]
    assert [answer.status_code for answer in answers] == [status, status]
    expected, found = (re.sub(rb'"trace_id":"[^"]*"', b"", answer.content) for answer in answers)
    assert found == expected


@pytest.mark.anyio
async def test_another_method_is_answered_by_the_framework(
    clients: list[httpx.AsyncClient],
) -> None:
    answers = [await client.put(f"/things/{ID}") for client in clients]
    assert [(answer.status_code, answer.headers["allow"]) for answer in answers] == [
        (405, "POST"),
        (405, "POST"),
    ]
