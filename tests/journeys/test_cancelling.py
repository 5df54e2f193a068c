"""Cancels settle a run in every status, and the thread accepts the next message."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import Effects
from tests.support.event_order import check_run
from tests.support.providers import FakeProvider
from tests.support.servers import Server, serving
from tests.support.streams import Client, types_of

pytestmark = pytest.mark.anyio


async def cancelled(client: Client, run: dict[str, Any], **params: Any) -> dict[str, Any]:
    response = await client.http.post(f"/v1/runs/{run['id']}/cancel", params=params)
    assert response.status_code == 200, response.text
    done: dict[str, Any] = response.json()
    assert (done["status"], done["outcome"]) == ("done", "cancelled")
    assert done["cancel_requested_at"] is not None
    return done


async def assert_thread_accepts_a_run(client: Client, run: dict[str, Any]) -> None:
    following = await client.start("quick", "go on", thread_id=run["thread_id"])
    assert (await client.settled(following["id"]))["outcome"] == "succeeded"


async def assert_one_clean_end(client: Client, run: dict[str, Any]) -> None:
    events = await client.log(f"/v1/runs/{run['id']}")
    check_run(events)
    assert events[-1]["event_type"] == "run_finish"
    ends = [event for event in events if event["event_type"] == "run_finish"]
    assert [end["termination"]["type"] for end in ends].count("cancelled") == 1
    assert events[-1]["termination"]["type"] == "cancelled"


async def test_a_created_run_without_workers_is_cancelled(database_url: str, agents: Path) -> None:
    async with serving(database_url, agents=agents, role="api") as api, api.client() as idle:
        run = await idle.start("quick", "never executed")
        assert run["status"] == "created"
        await cancelled(idle, run)
        await assert_one_clean_end(idle, run)


async def test_a_queued_run_is_cancelled(client: Client) -> None:
    first = await client.start("endless", "talk")
    thread_id = first["thread_id"]
    second = await client.start("quick", "wait", thread_id=thread_id)
    third = await client.start("quick", "wait longer", thread_id=thread_id)
    assert second["status"] == "created"
    await cancelled(client, second)
    await cancelled(client, first, wait=20)
    assert (await client.settled(third["id"]))["outcome"] == "succeeded"
    await assert_one_clean_end(client, second)
    await assert_thread_accepts_a_run(client, first)


async def test_a_run_that_streams_a_message_is_cancelled(
    client: Client, provider: FakeProvider
) -> None:
    before = await asyncio.to_thread(provider.stats)
    async with client.start_stream("endless", "talk") as stream:
        await stream.until("text_delta", 3)
        run = await client.run(stream.received[0]["run_id"])
        assert run["status"] == "running"
        await cancelled(client, run, wait=20)
        received = await stream.rest()
    assert received[-1]["termination"]["type"] == "cancelled"
    after = await asyncio.to_thread(provider.stats, closed_early=before.closed_early + 1)
    assert after.closed_early == before.closed_early + 1
    await assert_one_clean_end(client, run)
    await assert_thread_accepts_a_run(client, run)


async def test_a_run_that_executes_a_tool_is_cancelled(client: Client, tmp_path: Path) -> None:
    effects = Effects(tmp_path / "effects")
    run = await client.start("quick", effects.held("send"))
    await effects.happened()
    done = await cancelled(client, run, wait=20)
    assert done["output"]["message_ids"], "the open call must have got a result"
    await assert_one_clean_end(client, run)
    await assert_thread_accepts_a_run(client, run)
    assert len(effects.lines) == 1


async def test_a_waiting_run_is_cancelled(client: Client) -> None:
    run = await client.start("quick", 'CALL risky {"what": "it"}')
    waiting = await client.settled(run["id"])
    await cancelled(client, run)
    [ticket] = waiting["waiting"]["tickets"]
    assert (await client.get(f"/v1/tickets/{ticket['id']}"))["status"] == "void"
    late = {"decisions": [{"ticket_id": ticket["id"], "action": "approve"}]}
    refused = await client.post(f"/v1/runs/{run['id']}/decisions", late, 410)
    assert refused["code"] == "ticket_void"
    await assert_one_clean_end(client, run)
    await assert_thread_accepts_a_run(client, run)


async def test_cancelling_a_finished_run_changes_nothing(client: Client) -> None:
    run = await client.start("quick", "hello")
    done = await client.settled(run["id"])
    answer = await client.post(f"/v1/runs/{run['id']}/cancel")
    assert answer == done
    assert await client.run(run["id"]) == done


async def test_repeated_cancels_take_effect_once(client: Client) -> None:
    run = await client.start("endless", "talk")
    path = f"/v1/runs/{run['id']}/cancel"
    await asyncio.gather(*(client.http.post(path, json={"reason": f"r{n}"}) for n in range(5)))
    done = await client.settled(run["id"])
    events = await client.log(f"/v1/runs/{run['id']}")
    assert types_of(events).count("cancel_requested") == 1
    [cancel_request] = [event for event in events if event["event_type"] == "cancel_requested"]
    assert done["termination"] == {"type": "cancelled", "detail": cancel_request["reason"]}


async def test_a_cancel_without_wait_is_answered_before_the_run_ends(server: Server) -> None:
    async with server.client() as client:
        run = await client.start("endless", "talk")
        response = await client.http.post(f"/v1/runs/{run['id']}/cancel")
        assert response.status_code in (200, 202)
        assert response.json()["cancel_requested_at"] is not None
        assert (await client.settled(run["id"]))["outcome"] == "cancelled"


async def test_a_thread_is_cancelled_although_the_owner_of_its_run_is_dead(
    database_url: str, agents: Path
) -> None:
    async with (
        serving(database_url, agents=agents) as owner,
        serving(database_url, agents=agents) as other,
        owner.client() as lost,
        other.client() as client,
    ):
        first = await lost.start("endless", "talk")
        thread_id = first["thread_id"]
        async with client.events(f"/v1/threads/{thread_id}") as stream:
            await stream.until("text_delta", 2)
        behind = [await client.start("quick", "wait", thread_id=thread_id) for _ in range(2)]
        owner.kill()
        await owner.gone()
        response = await client.http.post(f"/v1/threads/{thread_id}/cancel", params={"wait": 20})
        assert response.status_code == 200, response.text
        runs = response.json()["runs"]
        assert [run["id"] for run in runs] == [run["id"] for run in (first, *behind)]
        assert {run["outcome"] for run in runs} == {"cancelled"}
        for run in runs:
            await assert_one_clean_end(client, run)
        await assert_thread_accepts_a_run(client, first)
