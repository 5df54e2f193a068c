"""`wait`, `Prefer: wait` and `follow` mean the same on every route that has them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from app.api.runs.waiting import MAX_WAIT_SECONDS
from tests.integration.conftest import AGENTS
from tests.support.problems import the_problem
from tests.support.servers import Server, serving
from tests.support.streams import EVENT_STREAM, Client, start_body

pytestmark = pytest.mark.anyio

WAITS = {
    "POST /v1/runs",
    "GET /v1/runs/{run_id}",
    "POST /v1/runs/{run_id}/cancel",
    "POST /v1/runs/{run_id}/pause",
    "POST /v1/threads/{thread_id}/cancel",
}
FOLLOWS = {"POST /v1/runs", "GET /v1/runs/{run_id}", "GET /v1/runs/{run_id}/events"}
STARTS = {"POST /v1/runs"}
NEEDS_DECISION = 'CALL risky {"what": "it"}'


@pytest.fixture(scope="module")
async def server(served_database: str) -> AsyncIterator[Server]:
    async with serving(served_database, agents=AGENTS) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client() as opened:
        yield opened


@dataclass(frozen=True, slots=True)
class Form:
    """One of the two forms in which a client says how long it waits."""

    is_header: bool

    def of(self, seconds: int, **params: Any) -> dict[str, Any]:
        if self.is_header:
            return {"headers": {"Prefer": f"wait={seconds}"}, "params": params}
        return {"params": {"wait": seconds, **params}}


@pytest.fixture(params=[True, False], ids=["Prefer", "wait"])
def form(request: pytest.FixtureRequest) -> Form:
    return Form(request.param)


def parameters(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters of each operation, by the operation and their names in lower case."""
    return {
        f"{method.upper()} {path}": {
            one["name"].lower(): one for one in operation.get("parameters", ())
        }
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }


async def test_every_route_that_waits_takes_the_same_parameters(client: Client) -> None:
    found = parameters(await client.get("/openapi.json"))
    for name, routes in (("wait", WAITS), ("prefer", WAITS), ("follow", FOLLOWS)):
        with_it = {route: each[name] for route, each in found.items() if name in each}
        assert with_it.keys() == routes
        assert len({str(one) for one in with_it.values()}) == 1, name


async def asked(client: Client, route: str, run: dict[str, Any], **request: Any) -> httpx2.Response:
    method, path = route.split()
    body: dict[str, Any] = {"json": start_body("quick", "hello")} if route in STARTS else {}
    return await client.http.request(
        method, path.format(run_id=run["id"], thread_id=run["thread_id"]), **body, **request
    )


@pytest.mark.parametrize("route", sorted(WAITS))
async def test_each_route_applies_the_preference_and_says_so(client: Client, route: str) -> None:
    run = await client.start("quick", NEEDS_DECISION)
    await client.settled(run["id"])
    for preference, applied in (
        ("wait=5", "wait=5"),
        ('wait="5"', "wait=5"),
        ("respond-async, WAIT = 5; strict", "wait=5"),
        ("wait=3, wait=5", "wait=3"),
        ("wait=0", "wait=0"),
        ("wait=99999999999999999999", f"wait={MAX_WAIT_SECONDS}"),
        ("x-wait=5", None),
        ("wait", None),
        ("wait=soon", None),
        ("wait=-1", None),
        ("wait=5.5", None),
        ("respond-async", None),
    ):
        answer = await asked(client, route, run, headers={"Prefer": preference})
        assert answer.status_code in (200, 202), preference
        assert answer.headers.get("preference-applied") == applied, preference
    both = await asked(client, route, run, headers={"Prefer": "wait=5"}, params={"wait": 1})
    assert "preference-applied" not in both.headers


@pytest.mark.parametrize("route", sorted(WAITS))
@pytest.mark.parametrize("seconds", ["-1", str(MAX_WAIT_SECONDS + 1), "5.5", "soon", ""])
async def test_a_parameter_that_is_no_time_is_refused_on_each_route(
    client: Client, route: str, seconds: str
) -> None:
    run = await client.start("quick", "hello")
    refused = await asked(client, route, run, params={"wait": seconds})
    assert the_problem(refused, 422, "invalid_request")["errors"][0]["at"] == "query.wait"


async def test_a_wait_ends_when_the_run_needs_a_decision(client: Client, form: Form) -> None:
    body = start_body("quick", NEEDS_DECISION)
    started = await client.http.post("/v1/runs", json=body, **form.of(20))
    assert (started.status_code, started.json()["status"]) == (200, "waiting")
    path = f"/v1/runs/{started.json()['id']}"
    assert (await client.http.get(path, **form.of(20))).json()["status"] == "waiting"


async def test_with_follow_a_wait_lasts_until_the_run_is_done(client: Client, form: Form) -> None:
    body = start_body("quick", NEEDS_DECISION)
    started = await client.http.post("/v1/runs", json=body, **form.of(1, follow=1))
    run = await client.settled(started.json()["id"])
    assert started.status_code == 202
    path = f"/v1/runs/{run['id']}"
    assert (await client.http.get(path, **form.of(1, follow=1))).json()["status"] == "waiting"
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(client.http.get(path, **form.of(20, follow=1)))
        await client.decide(run, "approve")
    assert waiting.result().json()["outcome"] == "succeeded"


@pytest.mark.parametrize("follow", [0, 1])
async def test_a_started_stream_and_a_followed_one_end_at_the_same_event(
    client: Client, follow: int
) -> None:
    """Without `follow` both end where the run needs a decision, with it both end with the run."""
    body = start_body("quick", NEEDS_DECISION)
    request: dict[str, Any] = {"json": body, "headers": EVENT_STREAM, "params": {"follow": follow}}
    async with client.http.stream("POST", "/v1/runs", **request) as response:
        path = response.headers["content-location"]
        async with client.events(path, follow=follow) as followed, asyncio.TaskGroup() as tasks:
            whole = tasks.create_task(_text_of(response))
            if follow:
                await client.decide(await client.settled(path.rpartition("/")[2]), "approve")
            events = await followed.rest()
    seen = [line for line in whole.result().splitlines() if line.startswith("id: ")]
    assert events[-1]["event_type"] == "run_finish"
    assert seen[-1] == f"id: {followed.last_id}"
    status = (await client.get(path))["status"]
    assert status == ("done" if follow else "waiting")


async def _text_of(response: httpx2.Response) -> str:
    return (await response.aread()).decode()


@pytest.mark.parametrize("route", ["run", "thread"])
async def test_a_cancel_that_waits_says_whether_it_is_done(
    client: Client, form: Form, route: str
) -> None:
    run = await client.start("talker", "one word after the other " * 50)
    id = run["id"] if route == "run" else run["thread_id"]
    path = f"/v1/{route}s/{id}/cancel"
    answer = await client.http.post(path, **form.of(20))
    assert answer.status_code == 200
    assert (await client.run(run["id"]))["outcome"] == "cancelled"


async def test_a_pause_that_waits_says_whether_the_run_is_suspended(
    client: Client, form: Form
) -> None:
    run = await client.start("talker", "one word after the other " * 20)
    answer = await client.http.post(f"/v1/runs/{run['id']}/pause", **form.of(20))
    assert (answer.status_code, answer.json()["status"]) in ((200, "waiting"), (200, "done"))


async def test_how_long_a_client_waits_does_not_change_what_it_asks(
    client: Client, form: Form
) -> None:
    """Requests that differ only in that are the same for their Idempotency-Key."""
    body, key = start_body("quick", "hello"), {"Idempotency-Key": f"waits-{form.is_header}"}
    first = await client.http.post("/v1/runs", json=body, headers=key)
    wait = form.of(20, follow=1)
    headers = {**wait.pop("headers", {}), **key}
    again = await client.http.post("/v1/runs", json=body, headers=headers, **wait)
    assert first.json()["id"] == again.json()["id"]
    assert (again.status_code, again.json()["status"]) == (200, "done")
    assert again.headers["idempotency-replayed"] == "true"
