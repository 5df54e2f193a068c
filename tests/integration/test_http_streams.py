"""Event streams over HTTP: their frames, where they begin, what they leave out and when they end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.support.problems import the_problem
from tests.support.servers import Server
from tests.support.streams import EVENT_STREAM, PATIENCE, Client, Event, types_of

pytestmark = pytest.mark.anyio

APPROVAL = 'CALL add {"a": 1, "b": 2} CALL risky {"what": "it"}'


@dataclass(frozen=True, slots=True)
class World:
    """A run that is done and one that waits, with all that they have said."""

    done: str
    heard: list[Event]
    waiting: dict[str, Any]
    head: int

    @property
    def waiting_path(self) -> str:
        return f"/v1/runs/{self.waiting['run_id']}"


@pytest.fixture(scope="module")
async def world(server: Server) -> World:
    async with server.client() as client:
        done = await client.start("talker", 'some words CALL add {"a": 1, "b": 2}')
        await client.settled(done["run_id"])
        run = await client.start("quick", APPROVAL)
        waiting = await client.settled(run["run_id"])
        path = f"/v1/runs/{done['run_id']}"
        log = await client.log(f"/v1/runs/{run['run_id']}")
        return World(path, await client.log(path), waiting, log[-1]["seq"])


@asynccontextmanager
async def raw(
    client: Client, path: str, *, last_id: str | None = None, **params: Any
) -> AsyncIterator[httpx2.Response]:
    headers = EVENT_STREAM | ({} if last_id is None else {"Last-Event-ID": last_id})
    async with client.http.stream("GET", path, headers=headers, params=params) as response:
        assert response.status_code == 200
        yield response


async def whole(client: Client, path: str, **params: Any) -> bytes:
    async with raw(client, f"{path}/events", **params) as response:
        return await response.aread()


async def stream_of(
    client: Client, path: str, last_id: str | None = None, **params: Any
) -> list[Event]:
    async with client.events(path, last_id=last_id, **params) as stream:
        return await stream.rest()


# --- frames ---------------------------------------------------------------------------------------


async def test_a_stream_is_what_event_sources_read(client: Client, world: World) -> None:
    async with raw(client, f"{world.done}/events") as response:
        headers = response.headers
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["cache-control"] == "no-cache, no-transform"
        assert headers["x-accel-buffering"] == "no"
        assert "content-length" not in headers
        assert "content-encoding" not in headers
        retry, *frames, end = (await response.aread()).decode().split("\n\n")
    assert (retry, end) == ("retry: 2000", "")
    for frame, event in zip(frames, world.heard, strict=True):
        id, data = frame.split("\n")
        assert id == f"id: {event['seq']}"
        assert data.startswith("data: {")
        assert json.loads(data.removeprefix("data: ")) == event


async def test_events_are_named_for_who_asks(client: Client, world: World) -> None:
    _, *frames, _ = (await whole(client, world.done, named=1)).decode().split("\n\n")
    names = [frame.split("\n")[0] for frame in frames]
    assert names == [f"event: {type}" for type in types_of(world.heard)]


async def test_an_event_is_one_flat_object(world: World) -> None:
    for event in world.heard:
        assert list(event)[:4] == ["seq", "ts", "thread_id", "run_id"]
        assert f"/v1/runs/{event['run_id']}" == world.done
    assert [event["seq"] for event in world.heard] == list(range(1, len(world.heard) + 1))


async def test_silence_is_filled_with_comments(client: Client, world: World) -> None:
    path = f"{world.waiting_path}/events"
    async with asyncio.timeout(PATIENCE), raw(client, path, last_id=str(world.head)) as response:
        heard = ""
        async for text in response.aiter_text():
            heard += text
            if heard.count(": heartbeat") == 2:
                break
    assert heard == "retry: 2000\n\n" + ": heartbeat\n\n" * 2


# --- what is left out -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params, passes",
    [
        ({"types": "run_created,run_finish"}, {"run_created", "run_finish"}),
        ({"types": "text_delta"}, {"text_delta"}),
        ({"types": "text_delta,step_end", "deltas": "0"}, {"step_end"}),
    ],
)
async def test_only_what_is_wanted_passes(
    client: Client, world: World, params: dict[str, str], passes: set[str]
) -> None:
    wanted = [event for event in world.heard if event["event_type"] in passes]
    assert set(types_of(wanted)) == passes
    assert await stream_of(client, world.done, **params) == wanted
    assert (await client.get(f"{world.done}/events", **params))["items"] == wanted


async def test_deltas_can_be_left_out(client: Client, world: World) -> None:
    heard = await stream_of(client, world.done, deltas=0)
    assert heard == [event for event in world.heard if not event["event_type"].endswith("_delta")]
    assert len(heard) < len(world.heard)


# --- where it begins ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["after", "cursor", "starting_after"])
async def test_a_stream_begins_after_a_cursor(client: Client, world: World, name: str) -> None:
    params: dict[str, Any] = {name: 3}
    assert await stream_of(client, world.done, **params) == world.heard[3:]


async def test_the_last_id_wins_over_the_address(client: Client, world: World) -> None:
    params: dict[str, Any] = {"after": 1, "cursor": 2, "from": "now"}
    assert await stream_of(client, world.done, last_id="4", **params) == world.heard[4:]
    assert await stream_of(client, world.done, **params) == world.heard[1:]


async def test_from_now_hears_only_what_comes(client: Client, world: World) -> None:
    thread = world.heard[0]["thread_id"]
    async with client.events(f"/v1/threads/{thread}", **{"from": "now"}) as stream:
        run = await client.start("quick", "next", thread_id=thread)
        finish = await stream.until("run_finish")
    assert {event["run_id"] for event in stream.heard} == {run["run_id"]}
    assert stream.heard[0]["event_type"] == "run_created"
    assert finish["termination"]["type"] == "natural_end"
    assert stream.heard == await client.log(f"/v1/runs/{run['run_id']}")


async def test_the_older_address_streams_whatever_is_accepted(client: Client, world: World) -> None:
    response = await client.http.get(f"{world.done}/events/stream")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.content == await whole(client, world.done)


# --- pages ----------------------------------------------------------------------------------------


async def test_pages_and_streams_show_the_same(client: Client, world: World) -> None:
    paged: list[Event] = []
    while True:
        after = paged[-1]["seq"] if paged else 0
        page = await client.get(f"{world.done}/events", after=after, limit=4)
        paged += page["items"]
        assert page["next_cursor"] == str(paged[-1]["seq"])
        if not page["has_more"]:
            break
        assert len(page["items"]) == 4
    assert paged == world.heard == await stream_of(client, world.done)


@pytest.mark.parametrize(
    "accept, kind",
    [
        ("text/event-stream", "text/event-stream"),
        ("application/json;q=0.5, text/event-stream", "text/event-stream"),
        ("text/event-stream;q=0.5, application/json", "application/json"),
        ("*/*", "application/json"),
    ],
)
async def test_what_is_liked_better_is_sent(
    client: Client, world: World, accept: str, kind: str
) -> None:
    response = await client.http.get(f"{world.done}/events", headers={"Accept": accept})
    assert response.headers["content-type"].startswith(kind)


# --- where it ends --------------------------------------------------------------------------------


async def test_nothing_comes_after_the_end_of_a_run(client: Client, world: World) -> None:
    last = str(world.heard[-1]["seq"])
    headers = EVENT_STREAM | {"Last-Event-ID": last}
    response = await client.http.get(f"{world.done}/events", headers=headers)
    assert (response.status_code, response.content) == (204, b"")
    page = await client.get(f"{world.done}/events", after=last)
    assert page == {"items": [], "next_cursor": last, "has_more": False}


async def test_a_stream_stays_through_a_rest_when_told_to_follow(client: Client) -> None:
    run = await client.settled((await client.start("quick", APPROVAL))["run_id"])
    path = f"/v1/runs/{run['run_id']}"
    rests = await stream_of(client, path)
    assert rests[-1]["termination"] == {"type": "suspended"}
    async with client.events(path, follow=1) as stream:
        await stream.until("run_finish")
        await client.decide(run, "approve")
        heard = await stream.rest()
    assert heard[: len(rests)] == rests
    assert heard[-1]["termination"]["type"] == "natural_end"
    assert heard == await client.log(path)


async def test_a_stream_of_a_start_repeated_is_the_same_stream(
    client: Client, world: World
) -> None:
    run_id = "0190abcd-0000-7000-8000-0000000000aa"
    async with client.start_stream("talker", "hello again", run_id=run_id) as stream:
        await stream.until("text_delta")
        async with client.start_stream("talker", "hello again", run_id=run_id) as other:
            assert await other.rest() == await stream.rest()


async def test_a_stream_of_what_is_not_here_is_a_problem(client: Client) -> None:
    for kind in ("run", "thread"):
        path = f"/v1/{kind}s/00000000-0000-7000-8000-000000000000/events"
        response = await client.http.get(path, headers=EVENT_STREAM)
        the_problem(response, 404, f"{kind}_not_found")
