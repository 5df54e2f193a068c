"""Snapshots of runs and threads have all that a page draws, and the id to follow from."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import Server, serving
from tests.support.streams import Client, text_of

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parents[1] / "surface" / "agents" / "agents.toml"
RISKY = 'CALL risky {"what": "it"}'
Json = dict[str, Any]


@pytest.fixture(scope="module")
async def server(served_database: str) -> AsyncIterator[Server]:
    async with serving(served_database, agents=AGENTS) as running:
        yield running


def newest_activities(events: list[Json]) -> list[Json]:
    """What a page shows that has read all events."""
    shown: dict[tuple[str, str], Json] = {}
    for event in events:
        if event["event_type"] == "activity_snapshot":
            names = ("message_id", "activity_type", "content")
            shown[event["message_id"], event["activity_type"]] = {
                name: event[name] for name in names
            }
    return list(shown.values())


async def test_a_snapshot_has_the_activities_that_a_reader_of_all_events_shows(
    client: Client,
) -> None:
    call = 'CALL agent_run_quick {"prompt": "hi"} '
    run = await client.ended((await client.start("chief", call * 2))["id"])
    snapshot = await client.get(f"/v1/runs/{run['id']}/snapshot")
    expected = newest_activities(await client.log(f"/v1/runs/{run['id']}"))
    assert len(expected) == 2
    assert snapshot["activities"] == expected


async def test_snapshots_have_the_newest_messages_and_say_that_there_are_more(
    client: Client,
) -> None:
    messages = [{"role": "user", "content": str(number)} for number in range(5)]
    started = await client.post("/v1/runs", {"agent_id": "quick", "messages": messages}, 202)
    run = await client.ended(started["id"])
    log = (await client.get(f"/v1/threads/{run['thread_id']}/messages"))["items"]
    for path in (f"/v1/runs/{run['id']}", f"/v1/threads/{run['thread_id']}"):
        whole = await client.get(f"{path}/snapshot")
        assert (whole["messages"], whole["has_more_messages"]) == (log, False)
        for limit in (1, 3, len(log)):
            part = await client.get(f"{path}/snapshot", messages_limit=limit)
            assert part["messages"] == log[-limit:]
            assert part["has_more_messages"] == (limit < len(log))
        for limit in (0, 10_001):
            response = await client.http.get(f"{path}/snapshot", params={"messages_limit": limit})
            assert response.status_code == 422


async def test_a_thread_that_never_ran_has_an_empty_snapshot(client: Client) -> None:
    thread = await client.post("/v1/threads", {"title": "New"}, 201)
    assert await client.get(f"/v1/threads/{thread['id']}/snapshot") == {
        "thread": thread,
        "run": None,
        "messages": [],
        "open_text": "",
        "open_reasoning": "",
        "open_tool_calls": [],
        "activities": [],
        "has_more_activities": False,
        "tickets": [],
        "has_more_tickets": False,
        "last_event_id": 0,
        "has_more_messages": False,
    }


async def test_the_snapshot_of_a_thread_has_its_log_its_open_run_and_its_tickets(
    client: Client,
) -> None:
    first = await client.ended((await client.start("quick", "hi", thread_key="t"))["id"])
    path = f"/v1/threads/{first['thread_id']}"
    done = await client.get(f"{path}/snapshot")
    assert (done["run"], done["tickets"]) == (None, [])
    second = await client.settled((await client.start("quick", RISKY, thread_key="t"))["id"])
    snapshot = await client.get(f"{path}/snapshot")
    assert snapshot["thread"] == await client.get(path)
    assert second == await client.run(second["id"])
    assert snapshot["run"] == second
    assert snapshot["messages"] == (await client.get(f"{path}/messages"))["items"]
    assert [ticket["run_id"] for ticket in snapshot["tickets"]] == [second["id"]]
    assert snapshot["last_event_id"] == (await client.log(path))[-1]["seq"]


async def test_a_page_that_reads_a_threads_snapshot_and_follows_it_misses_no_text(
    client: Client,
) -> None:
    words = "one two three four five six seven eight nine ten"
    async with client.start_stream("talker", words) as stream:
        await stream.until("text_delta", 3)
        run = stream.received[0]
        path = f"/v1/threads/{run['thread_id']}"
        snapshot = await client.get(f"{path}/snapshot")
        whole = text_of(await stream.rest())
    assert snapshot["run"]["status"] == "running"
    assert snapshot["open_text"]
    page = await client.get(f"{path}/events", cursor=snapshot["last_event_id"], limit=500)
    assert snapshot["open_text"] + text_of(page["items"]) == whole


async def test_a_stream_token_of_a_thread_reads_its_snapshot_and_no_other(client: Client) -> None:
    threads = [await client.post("/v1/threads", {}, 201) for _ in range(2)]
    body = {"thread_id": threads[0]["id"]}
    token = (await client.post("/v1/stream-tokens", body, 201))["token"]
    for thread, status in zip(threads, (200, 403), strict=True):
        response = await client.http.get(
            f"/v1/threads/{thread['id']}/snapshot", params={"stream_token": token}
        )
        assert response.status_code == status, response.text
