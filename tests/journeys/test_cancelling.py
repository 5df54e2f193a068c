"""The journey of a cancel: it settles in every status, and the thread takes the next message."""

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
    response = await client.http.post(f"/v1/runs/{run['run_id']}/cancel", params=params)
    assert response.status_code == 200, response.text
    done: dict[str, Any] = response.json()
    assert (done["status"], done["outcome"]) == ("done", "cancelled")
    assert done["cancel_requested_at"] is not None
    return done


async def assert_the_thread_goes_on(client: Client, run: dict[str, Any]) -> None:
    following = await client.start("quick", "go on", thread_id=run["thread_id"])
    assert (await client.settled(following["run_id"]))["outcome"] == "succeeded"


async def assert_one_clean_end(client: Client, run: dict[str, Any]) -> None:
    events = await client.log(f"/v1/runs/{run['run_id']}")
    check_run(events)
    assert events[-1]["event_type"] == "run_finish"
    ends = [event for event in events if event["event_type"] == "run_finish"]
    assert [end["termination"]["type"] for end in ends].count("cancelled") == 1
    assert events[-1]["termination"]["type"] == "cancelled"


async def test_created_where_nobody_executes(database_url: str, agents: Path) -> None:
    async with serving(database_url, agents=agents, role="api") as api, api.client() as idle:
        run = await idle.start("quick", "never executed")
        assert run["status"] == "created"
        await cancelled(idle, run)
        await assert_one_clean_end(idle, run)


async def test_created_and_behind_another(client: Client) -> None:
    first = await client.start("endless", "talk")
    thread_id = first["thread_id"]
    second = await client.start("quick", "wait", thread_id=thread_id)
    third = await client.start("quick", "wait longer", thread_id=thread_id)
    assert second["status"] == "created"
    await cancelled(client, second)
    await cancelled(client, first, wait=20)
    assert (await client.settled(third["run_id"]))["outcome"] == "succeeded"
    await assert_one_clean_end(client, second)
    await assert_the_thread_goes_on(client, first)


async def test_running_in_the_middle_of_a_message(client: Client, provider: FakeProvider) -> None:
    before = await asyncio.to_thread(provider.stats)
    async with client.start_stream("endless", "talk") as stream:
        await stream.until("text_delta", 3)
        run = await client.run(stream.heard[0]["run_id"])
        assert run["status"] == "running"
        await cancelled(client, run, wait=20)
        heard = await stream.rest()
    assert heard[-1]["termination"]["type"] == "cancelled"
    after = await asyncio.to_thread(provider.stats, closed_early=before.closed_early + 1)
    assert after.closed_early == before.closed_early + 1
    await assert_one_clean_end(client, run)
    await assert_the_thread_goes_on(client, run)


async def test_running_in_the_middle_of_a_tool(client: Client, tmp_path: Path) -> None:
    effects = Effects(tmp_path / "effects")
    run = await client.start("quick", effects.held("send"))
    await effects.happened()
    done = await cancelled(client, run, wait=20)
    assert done["output"]["message_ids"], "the open call must have got a result"
    await assert_one_clean_end(client, run)
    await assert_the_thread_goes_on(client, run)
    assert len(effects.lines) == 1


async def test_waiting(client: Client) -> None:
    run = await client.start("quick", 'CALL risky {"what": "it"}')
    waiting = await client.settled(run["run_id"])
    await cancelled(client, run)
    [ticket] = waiting["waiting"]["tickets"]
    assert (await client.get(f"/v1/tickets/{ticket['id']}"))["status"] == "void"
    late = {"decisions": [{"ticket_id": ticket["id"], "action": "approve"}]}
    refused = await client.post(f"/v1/runs/{run['run_id']}/decisions", late, 410)
    assert refused["code"] == "ticket_void"
    await assert_one_clean_end(client, run)
    await assert_the_thread_goes_on(client, run)


async def test_done_stays_as_it_is(client: Client) -> None:
    run = await client.start("quick", "hello")
    done = await client.settled(run["run_id"])
    answer = await client.post(f"/v1/runs/{run['run_id']}/cancel")
    assert answer == done
    assert await client.run(run["run_id"]) == done


async def test_twice_is_once(client: Client) -> None:
    run = await client.start("endless", "talk")
    path = f"/v1/runs/{run['run_id']}/cancel"
    await asyncio.gather(*(client.http.post(path, json={"reason": f"r{n}"}) for n in range(5)))
    done = await client.settled(run["run_id"])
    events = await client.log(f"/v1/runs/{run['run_id']}")
    assert types_of(events).count("cancel_requested") == 1
    [wish] = [event for event in events if event["event_type"] == "cancel_requested"]
    assert done["termination"] == {"type": "cancelled", "detail": wish["reason"]}


async def test_without_waiting_the_answer_says_that_it_will_be(server: Server) -> None:
    async with server.client() as client:
        run = await client.start("endless", "talk")
        response = await client.http.post(f"/v1/runs/{run['run_id']}/cancel")
        assert response.status_code in (200, 202)
        assert response.json()["cancel_requested_at"] is not None
        assert (await client.settled(run["run_id"]))["outcome"] == "cancelled"


async def test_a_whole_thread_though_its_owner_is_dead(database_url: str, agents: Path) -> None:
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
        assert [run["run_id"] for run in runs] == [run["run_id"] for run in (first, *behind)]
        assert {run["outcome"] for run in runs} == {"cancelled"}
        for run in runs:
            await assert_one_clean_end(client, run)
        await assert_the_thread_goes_on(client, first)
