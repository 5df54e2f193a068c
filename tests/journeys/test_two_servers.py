"""The journey of a run between two servers on one database: executed by one, seen and steered by both."""

import asyncio

import pytest

from tests.support.event_order import check_run
from tests.support.streams import Client, types_of

pytestmark = pytest.mark.anyio

WORDS = "one two three four five six seven eight nine ten eleven twelve " * 3


async def test_a_run_of_one_is_streamed_by_the_other_token_by_token(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    started = await here.start("talker", WORDS)
    assert started["status"] == "running", "it was to be executed where it was started"
    path = f"/v1/runs/{started['run_id']}"
    async with there.events(path) as stream:
        await stream.until("text_delta", 5)
        assert (await there.run(started["run_id"]))["status"] == "running"
        heard = await stream.rest()
    assert types_of(heard).count("text_delta") > 15
    check_run(heard)
    assert heard == await here.log(path) == await there.log(path)


async def test_a_stream_opened_before_the_run_hears_all_of_it(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    thread = await here.post("/v1/threads", {}, 201)
    path = f"/v1/threads/{thread['thread_id']}"
    async with there.events(path) as stream:
        await here.start("talker", WORDS, thread_id=thread["thread_id"])
        await stream.until("run_finish")
    assert [event["seq"] for event in stream.heard] == list(range(1, len(stream.heard) + 1))
    assert stream.heard == await here.log(path)


async def test_a_decision_counts_wherever_it_is_given(both: tuple[Client, Client]) -> None:
    here, there = both
    started = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await there.settled(started["run_id"])
    async with here.events(f"/v1/runs/{started['run_id']}", follow=1) as stream:
        await stream.until("run_finish")
        await there.decide(waiting, "approve")
        heard = await stream.rest()
    assert heard[-1]["termination"]["type"] == "natural_end"
    check_run(heard)


async def test_of_two_decisions_at_once_one_wins_and_the_other_is_told(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    started = await here.start("quick", 'CALL risky {"what": "it"}')
    [ticket] = (await here.settled(started["run_id"]))["waiting"]["tickets"]
    path = f"/v1/runs/{started['run_id']}/decisions"

    async def answer(client: Client, action: str) -> int:
        body = {"decisions": [{"ticket_id": ticket["id"], "action": action}]}
        return (await client.http.post(path, json=body)).status_code

    statuses = await asyncio.gather(
        *(answer(client, action) for client in both for action in ("approve", "reject"))
    )
    # The same answer by the same person is the same decision.
    assert sorted(statuses) == [200, 200, 409, 409]
    decided = (await here.get(f"/v1/tickets/{ticket['id']}"))["decision"]
    assert decided["action"] == ("approve" if statuses[0] == 200 else "reject")


async def test_a_cancel_reaches_the_run_wherever_it_is_wished(both: tuple[Client, Client]) -> None:
    here, there = both
    async with here.start_stream("endless", "talk") as stream:
        await stream.until("text_delta", 2)
        path = f"/v1/runs/{stream.heard[0]['run_id']}/cancel"
        response = await there.http.post(path, params={"wait": 20})
        heard = await stream.rest()
    assert response.status_code == 200
    assert response.json()["outcome"] == "cancelled"
    assert heard[-1]["termination"]["type"] == "cancelled"


# --- one thread, many starts ----------------------------------------------------------------------


async def test_a_start_that_will_not_wait_is_told_who_is_there(both: tuple[Client, Client]) -> None:
    here, there = both
    waiting = await here.start("quick", 'CALL risky {"what": "it"}')
    await here.settled(waiting["run_id"])
    body = {
        "agent_id": "quick",
        "thread_id": waiting["thread_id"],
        "messages": [{"role": "user", "content": "hello"}],
        "on_active": "reject",
    }
    refused = await there.post("/v1/runs", body, 409)
    assert (refused["code"], refused["active_run_id"]) == ("thread_busy", waiting["run_id"])
    runs = await here.get(f"/v1/threads/{waiting['thread_id']}/runs")
    assert [run["run_id"] for run in runs["items"]] == [waiting["run_id"]]


async def test_a_run_behind_one_that_waits_goes_when_that_is_done(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(first["run_id"])
    second = await there.start("quick", "hello", thread_id=first["thread_id"])
    assert second["status"] == "created"
    async with there.events(f"/v1/runs/{second['run_id']}") as stream:
        await stream.until("run_created")
        await there.decide(waiting, "approve")
        heard = await stream.rest()
    assert heard[-1]["termination"]["type"] == "natural_end"
    assert (await here.run(first["run_id"]))["outcome"] == "succeeded"
    check_run(heard)
