"""Each request is let in first and read later: authentication, then the scope, then everything else.

So a client without the right learns nothing, neither what would be a valid request nor what is there.
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
    "wrong parameters": {"params": {"limit": "x", "cursor": "x", "wait": "-1", "after": "x"}},
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
    # On a busy machine a shorter time-out lets another attempt take the task that never ends.
    async with serving(
        served_database, agents=AGENTS, api_keys_file=keys, heartbeat_timeout=60
    ) as running:
        yield running


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
async def test_a_request_is_let_in_before_it_is_read(
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
            ids = dict.fromkeys(route.ids, id)
            response = await ask(client, route, ids, **UNREADABLE[wrong])
            assert response.status_code == status, (route, response.text)
            the_problem(response, status, code)
    assert await all_rows(served_database) == before


def test_a_route_that_does_not_say_what_it_needs_cannot_be_made() -> None:
    router = APIRouter(route_class=AuthorizedRoute)

    async def open_to_all() -> None: ...

    with pytest.raises(TypeError, match="/open must depend on"):
        router.get("/open")(open_to_all)


# --- two ids in a path ----------------------------------------------------------------------------


async def belongings(client: Client) -> dict[str, str]:
    """A run with a task that doesn't end, and a message that the run hasn't read."""
    run = await client.settled((await client.start("delegate", "CALL later {}"))["run_id"])
    [task] = (await client.get(f"/v1/runs/{run['run_id']}/tasks"))["items"]
    asking = await client.settled(
        (await client.start("quick", 'CALL risky {"what": "it"}'))["run_id"]
    )
    more = {"messages": [{"role": "user", "content": "more"}], "mode": "steer"}
    queued = await client.post(f"/v1/runs/{asking['run_id']}/inputs", more, 202)
    return {
        "run_id": run["run_id"],
        "task_id": task["id"],
        "thread_id": asking["thread_id"],
        "input_id": queued["input_ids"][0],
    }


async def test_foreign_and_unknown_ids_are_answered_alike_in_every_combination(
    server: Server, served_database: str
) -> None:
    async with server.client("ann") as ann, server.client("bob") as bob:
        foreign, own = await belongings(ann), await belongings(bob)
        unknown = {name: f"{uuid4()}" for name in own} | {"task_id": f"bg_{uuid4()}"}
        routes = [route for route in await routes_of(bob) if len(route.ids) == 2]
        assert len(routes) >= 4
        await eventually(lambda: nothing_is_queued(served_database))
        before = await all_rows(served_database)
        for route in routes:
            outer, inner = route.ids
            for kinds in product((foreign, own, unknown), repeat=2):
                if kinds == (own, own):
                    continue
                ids = {outer: kinds[0][outer], inner: kinds[1][inner]}
                nowhere = {
                    outer: ids[outer] if kinds[0] is own else unknown[outer],
                    inner: unknown[inner],
                }
                there = await route.ask(bob, ids)
                assert there.status_code == 404, (route, there.text)
                assert what_is_told(there, ids) == what_is_told(
                    await route.ask(bob, nowhere), nowhere
                )
        assert await all_rows(served_database) == before


def what_is_told(response: httpx2.Response, ids: Mapping[str, str]) -> dict[str, Any]:
    """The problem, without the ids that the caller has sent."""
    text = response.text
    for name, id in ids.items():
        text = text.replace(id, name)
    return {**json.loads(text), "trace_id": ""}
