"""Event streams over HTTP: their frames, their start, their filters and their end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.support.envelopes import untimed
from tests.support.problems import the_problem
from tests.support.servers import Server
from tests.support.streams import (
    EVENT_STREAM,
    TIMEOUT_SECONDS,
    WHOLE_LOG,
    Client,
    Event,
    text_of,
    types_of,
)

pytestmark = pytest.mark.anyio

APPROVAL = 'CALL add {"a": 1, "b": 2} CALL risky {"what": "it"}'


@dataclass(frozen=True, slots=True)
class StoredRuns:
    """A finished run with its events, and a waiting one."""

    done: str
    received: list[Event]
    waiting: dict[str, Any]
    head: int

    @property
    def waiting_path(self) -> str:
        return f"/v1/runs/{self.waiting['id']}"


@pytest.fixture(scope="module")
async def world(server: Server) -> StoredRuns:
    async with server.client() as client:
        done = await client.start("talker", 'some words CALL add {"a": 1, "b": 2}')
        await client.settled(done["id"])
        run = await client.start("quick", APPROVAL)
        waiting = await client.settled(run["id"])
        path = f"/v1/runs/{done['id']}"
        log = await client.log(f"/v1/runs/{run['id']}")
        return StoredRuns(path, await client.log(path), waiting, log[-1]["seq"])


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


async def test_a_stream_has_the_format_of_server_sent_events(
    client: Client, world: StoredRuns
) -> None:
    async with raw(client, f"{world.done}/events", **WHOLE_LOG) as response:
        headers = response.headers
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["cache-control"] == "no-cache, no-transform"
        assert headers["x-accel-buffering"] == "no"
        assert "content-length" not in headers
        retry, *frames, end = (await response.aread()).decode().split("\n\n")
    assert (retry, end) == ("retry: 2000", "")
    first, *others = [frame.split("\n") for frame in frames]
    assert [id for id, _ in (first, *others)] == [f"id: {event['seq']}" for event in world.received]
    assert all(data.startswith("data: {") for _, data in (first, *others))
    assert json.loads(first[1].removeprefix("data: ")) == world.received[0]
    for (_, data), event in zip(others, world.received[1:], strict=True):
        told_before = {"seq", "thread_id", "run_id"}
        assert json.loads(data.removeprefix("data: ")) == {
            name: event[name] for name in event if name not in told_before
        }


async def test_events_have_names_if_the_client_asks_for_them(
    client: Client, world: StoredRuns
) -> None:
    _, *frames, _ = (await whole(client, world.done, named=1, **WHOLE_LOG)).decode().split("\n\n")
    names = [frame.split("\n")[0] for frame in frames]
    assert names == [f"event: {type}" for type in types_of(world.received)]


async def test_an_event_is_one_flat_object(world: StoredRuns) -> None:
    for event in world.received:
        assert {*event} >= {"seq", "thread_id", "run_id", "event_type"}
        assert f"/v1/runs/{event['run_id']}" == world.done
    assert [event["seq"] for event in world.received] == list(range(1, len(world.received) + 1))


async def test_an_idle_stream_gets_heartbeat_comments(client: Client, world: StoredRuns) -> None:
    path = f"{world.waiting_path}/events"
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        raw(client, path, last_id=str(world.head)) as response,
    ):
        received = ""
        async for text in response.aiter_text():
            received += text
            if received.count(": heartbeat") == 2:
                break
    assert received == "retry: 2000\n\n" + ": heartbeat\n\n" * 2


async def test_a_streamed_token_takes_at_most_110_bytes(client: Client) -> None:
    run = await client.start("talker", " ".join(["token"] * 190))
    path = f"/v1/runs/{run['id']}"
    _, *frames, _ = (await whole(client, path, follow=1)).split(b"\n\n")
    tokens = [len(frame) + 2 for frame in frames if b'"text_delta"' in frame]
    assert len(tokens) >= 190
    assert sum(tokens) / len(tokens) <= 110


async def test_the_first_event_of_each_connection_has_the_whole_envelope(
    client: Client, world: StoredRuns
) -> None:
    thread = world.received[0]["thread_id"]
    page = await client.get(f"/v1/threads/{thread}/events")
    for last_id in (None, "4"):
        async with raw(client, f"{world.done}/events", last_id=last_id) as response:
            _, first, second, *_ = (await response.aread()).decode().split("\n\n")
        at = int(last_id or 0)
        assert json.loads(first.partition("data: ")[2]) == page["items"][at]
        assert json.loads(second.partition("data: ")[2]).keys() & {"run_id", "thread_id"} == set()
    assert all({"seq", "ts", "thread_id", "run_id"} <= event.keys() for event in page["items"])


# --- filters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params, passes",
    [
        ({"types": "run_created,run_finish"}, {"run_created", "run_finish"}),
        ({"types": "text_delta"}, {"text_delta"}),
        ({"types": "text_delta,step_end", "deltas": "0"}, {"step_end"}),
    ],
)
async def test_a_stream_can_be_filtered_by_event_type(
    client: Client, world: StoredRuns, params: dict[str, str], passes: set[str]
) -> None:
    wanted = [event for event in world.received if event["event_type"] in passes]
    assert set(types_of(wanted)) == passes
    assert await stream_of(client, world.done, **params) == wanted
    page = await client.get(f"{world.done}/events", **params, **WHOLE_LOG)
    assert [untimed(event) for event in page["items"]] == wanted


async def test_deltas_can_be_left_out(client: Client, world: StoredRuns) -> None:
    received = await stream_of(client, world.done, deltas=0)
    assert received == [
        event for event in world.received if not event["event_type"].endswith("_delta")
    ]
    assert len(received) < len(world.received)


async def test_without_deltas_the_text_is_in_the_messages_as_the_log_has_them(
    client: Client, world: StoredRuns
) -> None:
    received = await stream_of(client, world.done, deltas=0)
    thread = await client.get(f"/v1/threads/{world.received[0]['thread_id']}/messages")
    logged = [message for message in thread["items"] if message["role"] == "assistant"]
    emitted = [event["message"] for event in received if event["event_type"] == "message_done"]
    assert len(emitted) == len(logged) > 0
    for message, event in zip(logged, emitted, strict=True):
        assert {name: message[name] for name in event} == event
        absent = message.keys() - event.keys() - {"created_at", "visibility"}
        assert [message[name] for name in absent] == [None] * len(absent)
    texts = [block["text"] for message in emitted for block in message["content"]]
    assert "".join(texts) == text_of(world.received) != ""


async def test_a_result_has_the_same_shape_in_its_event_and_in_the_log(
    client: Client, world: StoredRuns
) -> None:
    thread = world.waiting["thread_id"]
    logged = {
        each["id"]: each for each in (await client.get(f"/v1/threads/{thread}/messages"))["items"]
    }
    done = [
        event
        for event in await client.log(world.waiting_path)
        if event["event_type"] == "tool_call_done"
    ]
    assert [event["result"] for event in done] == [
        {"text": "3", "status": "done", "outcome": "succeeded", "data": 3},
        {"text": "Tool 'risky' suspended: awaiting approval", "status": "waiting"},
    ]
    for event in done:
        message = logged[event["message_id"]]
        assert message["tool_call_id"] == event["tool_call_id"]
        assert event["result"] == message["result"]


async def test_an_approval_is_sent_once_in_full(client: Client, world: StoredRuns) -> None:
    events = await client.log(world.waiting_path)
    [opened] = [event["ticket"] for event in events if event["event_type"] == "ticket_opened"]
    [suspended] = [event for event in events if event.get("ticket_id") == opened["id"]]
    assert suspended["event_type"] == "tool_call_done"
    assert suspended.keys() & {"suspension", "pending", "arguments"} == set()
    assert suspended["result"].keys() == {"status", "text"}


# --- where it begins ------------------------------------------------------------------------------


async def test_a_stream_begins_after_a_cursor(client: Client, world: StoredRuns) -> None:
    assert await stream_of(client, world.done, cursor=3) == world.received[3:]


async def test_the_last_event_id_header_takes_precedence_over_the_query(
    client: Client, world: StoredRuns
) -> None:
    params: dict[str, Any] = {"cursor": 1, "from": "now"}
    assert await stream_of(client, world.done, last_id="4", **params) == world.received[4:]
    assert await stream_of(client, world.done, **params) == world.received[1:]


async def test_a_stream_from_now_has_only_new_events(client: Client, world: StoredRuns) -> None:
    thread = world.received[0]["thread_id"]
    async with client.events(f"/v1/threads/{thread}", **{"from": "now"}) as stream:
        run = await client.start("quick", "next", thread_id=thread)
        finish = await stream.until("run_finish")
    assert {event["run_id"] for event in stream.received} == {run["id"]}
    assert stream.received[0]["event_type"] == "run_created"
    assert finish["termination"]["type"] == "natural_end"
    assert stream.received == await client.log(f"/v1/runs/{run['id']}")


# --- pages ----------------------------------------------------------------------------------------


async def test_pages_and_streams_show_the_same(client: Client, world: StoredRuns) -> None:
    paged: list[Event] = []
    while True:
        after = paged[-1]["seq"] if paged else 0
        page = await client.get(f"{world.done}/events", cursor=after, limit=4, **WHOLE_LOG)
        paged += map(untimed, page["items"])
        assert page["next_cursor"] == str(paged[-1]["seq"])
        if not page["has_more"]:
            break
        assert len(page["items"]) == 4
    assert paged == world.received == await stream_of(client, world.done)


@pytest.mark.parametrize(
    "accept, kind",
    [
        ("text/event-stream", "text/event-stream"),
        ("application/json;q=0.5, text/event-stream", "text/event-stream"),
        ("text/event-stream;q=0.5, application/json", "application/json"),
        ("*/*", "application/json"),
    ],
)
async def test_the_accept_header_chooses_between_stream_and_page(
    client: Client, world: StoredRuns, accept: str, kind: str
) -> None:
    response = await client.http.get(f"{world.done}/events", headers={"Accept": accept})
    assert response.headers["content-type"].startswith(kind)


# --- where it ends --------------------------------------------------------------------------------


async def test_no_event_comes_after_the_end_of_a_run(client: Client, world: StoredRuns) -> None:
    last = str(world.received[-1]["seq"])
    headers = EVENT_STREAM | {"Last-Event-ID": last}
    response = await client.http.get(f"{world.done}/events", headers=headers)
    assert (response.status_code, response.content) == (204, b"")
    page = await client.get(f"{world.done}/events", cursor=last)
    assert (page["items"], page["has_more"]) == ([], False)
    assert int(page["next_cursor"]) >= int(last), "later events of the thread need no second look"


async def test_a_following_stream_stays_open_during_a_suspension(client: Client) -> None:
    run = await client.settled((await client.start("quick", APPROVAL))["id"])
    path = f"/v1/runs/{run['id']}"
    until_suspended = await stream_of(client, path)
    assert until_suspended[-1]["termination"] == {"type": "suspended"}
    async with client.events(path, follow=1) as stream:
        await stream.until("run_finish")
        await client.decide(run, "approve")
        received = await stream.rest()
    assert received[: len(until_suspended)] == until_suspended
    assert received[-1]["termination"]["type"] == "natural_end"
    assert received == await client.log(path)


async def test_a_repeated_streamed_start_gets_the_same_stream(
    client: Client, world: StoredRuns
) -> None:
    run_id = "0190abcd-0000-7000-8000-0000000000aa"
    async with client.start_stream("talker", "hello again", run_id=run_id) as stream:
        await stream.until("text_delta")
        async with client.start_stream("talker", "hello again", run_id=run_id) as other:
            assert await other.rest() == await stream.rest()


async def test_a_stream_of_an_unknown_id_is_answered_with_a_problem(client: Client) -> None:
    for kind in ("run", "thread"):
        path = f"/v1/{kind}s/00000000-0000-7000-8000-000000000000/events"
        response = await client.http.get(path, headers=EVENT_STREAM)
        the_problem(response, 404, f"{kind}_not_found")
