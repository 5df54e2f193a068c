"""`?include=`: what runs and events show only when a client asks for it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.problems import the_problem
from tests.support.servers import Server, serving
from tests.support.streams import EVENT_STREAM, Client, Event, start_body

pytestmark = pytest.mark.anyio

RISKY = 'CALL risky {"what": "it"}'
DELEGATION = 'CALL agent_run_quick {"prompt": "hi"}'
OF_A_TRACE = {"session_id", "request"}
HIDDEN = OF_A_TRACE | {"dispatch_id", "transport_request_id", "state", "usage_by_model"}
AGENTS = Path(__file__).parents[1] / "surface" / "agents" / "agents.toml"
Record = dict[str, Any]


@pytest.fixture(scope="module")
async def server(served_database: str) -> AsyncIterator[Server]:
    async with serving(served_database, agents=AGENTS) as running:
        yield running


async def _answers(client: Client, params: dict[str, str]) -> dict[str, Record]:
    """A run from each operation that shows runs, by the operation."""
    post, get = client.post, client.get

    async def send(path: str, body: Any = None, status: int = 200) -> Record:
        response = await client.http.post(path, json=body, params=params)
        assert response.status_code == status, response.text
        answer: Record = response.json()
        return answer

    started = await send("/v1/runs", start_body("quick", RISKY), 202)
    run = await client.settled(started["id"])
    path, thread = f"/v1/runs/{run['id']}", f"/v1/threads/{run['thread_id']}"
    paused = await post(f"{path}/pause", status=200)
    assert paused["pause"]
    found = {
        "start": started,
        "get": await get(path, **params),
        "wait": await get(path, wait=1, **params),
        "list": (await get("/v1/runs", thread_id=run["thread_id"], **params))["items"][0],
        "list of the thread": (await get(f"{thread}/runs", **params))["items"][0],
        "snapshot": (await get(f"{path}/snapshot", **params))["run"],
        "snapshot of the thread": (await get(f"{thread}/snapshot", **params))["run"],
        "pause": await send(f"{path}/pause"),
        "resume": await send(f"{path}/resume"),
    }
    decision = {"ticket_id": run["waiting"]["tickets"][0]["id"], "action": "approve"}
    found["decisions"] = (await send(f"{path}/decisions", {"decisions": [decision]}))["run"]
    await client.ended(run["id"])
    other = await client.settled((await client.start("quick", RISKY))["id"])
    found["cancel"] = await send(f"/v1/runs/{other['id']}/cancel")
    found["retry"] = await send(f"/v1/runs/{other['id']}/retry", status=202)
    third = await client.settled((await client.start("quick", RISKY))["id"])
    cancelled = await send(f"/v1/threads/{third['thread_id']}/cancel")
    [found["cancel of the thread"]] = cancelled["runs"]
    parent = await client.ended((await client.start("chief", DELEGATION))["id"])
    children = await get(f"/v1/runs/{parent['id']}/children", **params)
    found["children"] = children["items"][0]
    return found


async def test_no_operation_shows_a_trace_or_a_state_without_being_asked(client: Client) -> None:
    for operation, run in (await _answers(client, {})).items():
        assert HIDDEN.isdisjoint(run), operation
        assert "since_dispatch_id" not in (run["waiting"] or {}), operation


async def test_every_operation_that_shows_runs_adds_their_trace(client: Client) -> None:
    for operation, run in (await _answers(client, {"include": "trace"})).items():
        assert run.keys() >= OF_A_TRACE, operation
        assert run["session_id"].startswith(run["id"]), operation
        assert "state" not in run, operation
        assert (run["waiting"] is None) or run["waiting"]["since_dispatch_id"], operation


async def test_every_operation_that_shows_runs_adds_their_state(client: Client) -> None:
    for operation, run in (await _answers(client, {"include": "state"})).items():
        assert isinstance(run["state"], dict), operation
        assert OF_A_TRACE.isdisjoint(run), operation


async def test_every_operation_that_reads_runs_adds_their_usage(client: Client) -> None:
    first = await client.ended((await client.start("quick", "hi"))["id"])
    same = {"thread_id": first["thread_id"]}
    waiting = await client.settled((await client.start("quick", RISKY, **same))["id"])
    path, thread = f"/v1/runs/{waiting['id']}", f"/v1/threads/{waiting['thread_id']}"
    asked = {"include": "usage"}
    single = await client.get(path, **asked)
    [usage] = single["usage_by_model"]
    assert usage["input_tokens"] == single["input_tokens"] > 0
    assert (await client.get(path, wait=1, **asked)) == single
    assert (await client.get(f"{path}/snapshot", **asked))["run"] == single
    assert (await client.get(f"{thread}/snapshot", **asked))["run"] == single
    both = [single, await client.get(f"/v1/runs/{first['id']}", **asked)]
    assert len(both[1]["usage_by_model"]) == 1
    assert (await client.get("/v1/runs", **same, **asked))["items"] == both
    assert (await client.get(f"{thread}/runs", **asked))["items"] == both
    parent = await client.ended((await client.start("chief", DELEGATION))["id"])
    [child] = (await client.get(f"/v1/runs/{parent['id']}/children", **asked))["items"]
    assert child == await client.run(child["id"], **asked)
    assert [one["requests"] for one in child["usage_by_model"]] == [1]


async def test_all_are_shown_together(client: Client) -> None:
    run = await client.settled((await client.start("quick", RISKY))["id"])
    shown = await client.run(run["id"], include=" trace,state,usage")
    assert shown.keys() >= OF_A_TRACE | {"state", "usage_by_model"}
    assert shown["state"]["extensions"]["__runtime.run_lifecycle"]["status"] == "waiting"
    assert run == await client.run(run["id"], include="")


async def test_a_repetition_gets_the_first_answer_with_what_it_included(client: Client) -> None:
    body, headers = start_body("quick", "hello"), {"Idempotency-Key": "included once"}
    first, again, other = [
        await client.http.post("/v1/runs", json=body, headers=headers, params=params)
        for params in ({"include": "trace"}, {"include": "trace"}, {})
    ]
    assert first.json() == again.json()
    assert "request" in again.json()
    the_problem(other, 422, "idempotency_key_reused")


# --- events ---------------------------------------------------------------------------------------


async def _finished(client: Client) -> Record:
    """A run that was suspended, resumed and has ended."""
    run = await client.settled((await client.start("quick", RISKY))["id"])
    await client.decide(run, "approve")
    return await client.ended(run["id"])


async def _page(client: Client, path: str, **params: str) -> list[Event]:
    page = await client.get(f"{path}/events", limit=500, **params)
    assert not page["has_more"]
    items: list[Event] = page["items"]
    return items


async def _streamed(client: Client, method: str, path: str, **request: Any) -> list[Event]:
    """The events of a stream as they are sent. That of a thread is read up to the end of a run."""
    events: list[Event] = []
    async with client.http.stream(method, path, headers=EVENT_STREAM, **request) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
                if events[-1]["event_type"] == "run_finish" and "outcome" in events[-1]:
                    break
    return events


async def _events(client: Client, **params: str) -> dict[str, list[Event]]:
    """The events of a run as each operation shows them."""
    run = await _finished(client)
    path, thread = f"/v1/runs/{run['id']}", f"/v1/threads/{run['thread_id']}"
    body = start_body("quick", "hello")
    return {
        "start": await _streamed(client, "POST", "/v1/runs", params=params, json=body),
        "page": await _page(client, path, **params),
        "page of the thread": await _page(client, thread, **params),
        "stream": await _streamed(client, "GET", f"{path}/events", params=params),
        "stream of the thread": await _streamed(client, "GET", f"{thread}/events", params=params),
    }


def _of(events: list[Event], *types: str) -> list[Event]:
    return [event for event in events if event["event_type"] in types]


async def test_events_show_neither_a_trace_nor_a_state_without_being_asked(client: Client) -> None:
    for operation, events in (await _events(client)).items():
        assert _of(events, "run_start", "run_finish"), operation
        assert not _of(events, "state_snapshot"), operation
        assert not any("identity" in event for event in events), operation
        assert not any("since_dispatch_id" in event.get("waiting", {}) for event in events)


async def test_events_have_their_trace_on_request(client: Client) -> None:
    for operation, events in (await _events(client, include="trace")).items():
        traced = [event for event in events if "identity" in event]
        assert traced == _of(events, "run_start", "run_finish") != [], operation
        assert all(event["identity"]["session_id"] for event in traced), operation
        waits = [event["waiting"] for event in events if "waiting" in event]
        assert all(wait["since_dispatch_id"] for wait in waits), operation
        assert bool(waits) == (operation != "start"), operation
        assert not _of(events, "state_snapshot"), operation


async def test_events_of_the_state_are_shown_on_request(client: Client) -> None:
    for operation, events in (await _events(client, include="state")).items():
        assert _of(events, "state_snapshot"), operation
        assert not any("identity" in event for event in events), operation


async def test_a_client_that_names_the_type_gets_states_without_asking_twice(
    client: Client,
) -> None:
    path = f"/v1/runs/{(await _finished(client))['id']}"
    for types in ("state_snapshot", "state_snapshot,run_finish"):
        events = await _page(client, path, types=types)
        assert {event["event_type"] for event in events} == set(types.split(","))


async def test_a_stream_without_states_resumes_after_each_of_its_events(client: Client) -> None:
    run = await _finished(client)
    path = f"/v1/runs/{run['id']}"
    events = await _page(client, path)
    for place, event in enumerate(events):
        assert await _page(client, path, cursor=str(event["seq"])) == events[place + 1 :]


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, problem",
    [
        ("stat", "unknown value 'stat'; did you mean state?"),
        ("trace,Traces", "unknown value 'Traces'; did you mean trace?"),
        ("xyzzy", "unknown value 'xyzzy'."),
        ("usage", "unknown value 'usage'; did you mean state?"),
    ],
)
async def test_an_unknown_value_is_refused_with_the_one_that_it_may_mean(
    client: Client, value: str, problem: str
) -> None:
    before = await client.get("/v1/runs", limit=1)
    for headers in ({}, EVENT_STREAM):
        refused = await client.http.post(
            "/v1/runs", json=start_body("quick", "hi"), params={"include": value}, headers=headers
        )
        found = the_problem(refused, 422, "invalid_request")
        assert found["errors"] == [{"at": "query.include", "problem": problem}]
        assert found["detail"].endswith("This parameter takes state, trace, separated by commas.")
    assert await client.get("/v1/runs", limit=1) == before
