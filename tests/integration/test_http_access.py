"""Each request is checked in this order: authentication, then the scope, then everything else.

So a client without the scope learns neither which requests are valid nor which ids exist.
"""

import json
from collections.abc import AsyncIterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from fastapi import APIRouter

from app.http.access import AuthorizedRoute
from tests.support.conditions import eventually
from tests.support.keys import Holder, write_keys
from tests.support.problems import the_problem
from tests.support.routes import UNKNOWN, Route, routes_of
from tests.support.rows import all_rows, nothing_is_queued
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parents[1] / "surface" / "agents" / "agents.toml"
JSON = {"Content-Type": "application/json"}
UNREADABLE: Mapping[str, dict[str, Any]] = {
    "no JSON": {"content": b"{", "headers": JSON},
    "unknown field": {"content": b'{"no_such_field": 1}', "headers": JSON},
    "field twice": {"content": b'{"a": 1, "a": 2}', "headers": JSON},
    "no body": {},
    "text": {"content": b"hello", "headers": {"Content-Type": "text/plain"}},
    "unknown parameter": {"params": {"no_such_parameter": "1"}},
    "wrong parameters": {"params": {"limit": "x", "cursor": "x", "wait": "-1"}},
    "wrong headers": {
        "headers": {"If-Match": "x", "Last-Event-ID": "x", "Idempotency-Key": "\u00e9".encode()}
    },
}


@pytest.fixture(scope="module")
async def server(
    served_database: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    holders = {
        "ann": Holder("acme"),
        "bob": Holder("globex"),
        "powerless": Holder("acme", ["approve:money"]),
    }
    keys = write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", holders)
    # On a busy machine a shorter time-out lets another attempt claim the endless task.
    async with serving(
        served_database, agents=AGENTS, api_keys_file=keys, heartbeat_timeout=60
    ) as running:
        yield running


NEEDS_NO_SCOPE = "/v1/me"
"""It tells a key which scopes it has."""


async def ask(
    client: Client, route: Route, ids: Mapping[str, str], **request: Any
) -> httpx2.Response:
    return await client.http.request(route.method, route.path.format(**ids), **request)


@pytest.mark.parametrize("wrong", UNREADABLE)
@pytest.mark.parametrize("id", [UNKNOWN, "no-uuid"])
@pytest.mark.parametrize(
    "holder, status, code",
    [(None, 401, "unauthenticated"), ("powerless", 403, "scope_missing")],
)
async def test_authentication_and_scope_are_checked_before_the_request_is_read(
    server: Server,
    served_database: str,
    wrong: str,
    id: str,
    holder: str | None,
    status: int,
    code: str,
) -> None:
    before = await all_rows(served_database)
    async with server.client(holder) as client:
        for route in await routes_of(client):
            if holder is not None and route.path == NEEDS_NO_SCOPE:
                continue
            ids = dict.fromkeys(route.ids, id)
            response = await ask(client, route, ids, **UNREADABLE[wrong])
            assert response.status_code == status, (route, response.text)
            the_problem(response, status, code)
    assert await all_rows(served_database) == before


def test_a_route_without_a_declared_scope_cannot_be_defined() -> None:
    router = APIRouter(route_class=AuthorizedRoute)

    async def open_to_all() -> None: ...

    with pytest.raises(TypeError, match="/open must depend on"):
        router.get("/open")(open_to_all)


# --- two ids in a path ----------------------------------------------------------------------------


async def ids_of_a_tenant(client: Client) -> dict[str, str]:
    """A run with a task that doesn't end, and a message that the run hasn't read."""
    run = await client.settled((await client.start("delegate", "CALL later {}"))["id"])
    [task] = (await client.get(f"/v1/runs/{run['id']}/tasks"))["items"]
    asking = await client.settled((await client.start("quick", 'CALL risky {"what": "it"}'))["id"])
    more = {"messages": [{"role": "user", "content": "more"}], "mode": "steer"}
    queued = await client.post(f"/v1/runs/{asking['id']}/inputs", more, 202)
    return {
        "run_id": run["id"],
        "task_id": task["id"],
        "thread_id": asking["thread_id"],
        "input_id": queued["input_ids"][0],
    }


async def test_foreign_and_unknown_ids_are_answered_alike_in_every_combination(
    server: Server, served_database: str
) -> None:
    async with server.client("ann") as ann, server.client("bob") as bob:
        foreign, own = await ids_of_a_tenant(ann), await ids_of_a_tenant(bob)
        unknown = {name: f"{uuid4()}" for name in own} | {"task_id": f"bg_{uuid4()}"}
        # The number of an event isn't the id of a row.
        routes = [
            route
            for route in await routes_of(bob)
            if len(route.ids) == 2 and "seq" not in route.ids
        ]
        assert len(routes) >= 4
        await eventually(lambda: nothing_is_queued(served_database))
        before = await all_rows(served_database)
        for route in routes:
            outer, inner = route.ids
            for kinds in product((foreign, own, unknown), repeat=2):
                if kinds == (own, own):
                    continue
                ids = {outer: kinds[0][outer], inner: kinds[1][inner]}
                unknown_answer = {
                    outer: ids[outer] if kinds[0] is own else unknown[outer],
                    inner: unknown[inner],
                }
                foreign_answer = await route.ask(bob, ids)
                assert foreign_answer.status_code == 404, (route, foreign_answer.text)
                assert problem_without_ids(foreign_answer, ids) == problem_without_ids(
                    await route.ask(bob, unknown_answer), unknown_answer
                )
        assert await all_rows(served_database) == before


def problem_without_ids(response: httpx2.Response, ids: Mapping[str, str]) -> dict[str, Any]:
    """The problem, without the ids that the caller has sent."""
    text = response.text
    for name, id in ids.items():
        text = text.replace(id, name)
    return {**json.loads(text), "trace_id": ""}
