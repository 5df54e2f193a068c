"""Two servers on one database: one executes the run, both stream and steer it."""

import asyncio

import pytest

from tests.support.event_order import check_run
from tests.support.streams import Client, types_of

pytestmark = pytest.mark.anyio

WORDS = "one two three four five six seven eight nine ten eleven twelve " * 3


async def test_a_run_is_streamed_by_the_other_server_token_by_token(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    started = await here.start("talker", WORDS)
    assert started["status"] == "running", (
        "the server that accepted the start did not execute the run"
    )
    path = f"/v1/runs/{started['id']}"
    async with there.events(path) as stream:
        await stream.until("text_delta", 5)
        assert (await there.run(started["id"]))["status"] == "running"
        received = await stream.rest()
    assert types_of(received).count("text_delta") > 15
    check_run(received)
    assert received == await here.log(path) == await there.log(path)


async def test_a_stream_opened_before_the_run_receives_all_its_events(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    thread = await here.post("/v1/threads", {}, 201)
    path = f"/v1/threads/{thread['id']}"
    async with there.events(path) as stream:
        await here.start("talker", WORDS, thread_id=thread["id"])
        await stream.until("run_finish")
    assert [event["seq"] for event in stream.received] == list(range(1, len(stream.received) + 1))
    assert stream.received == await here.log(path)


async def test_a_decision_at_the_other_server_resumes_the_run(both: tuple[Client, Client]) -> None:
    here, there = both
    started = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await there.settled(started["id"])
    async with here.events(f"/v1/runs/{started['id']}", follow=1) as stream:
        await stream.until("run_finish")
        await there.decide(waiting, "approve")
        received = await stream.rest()
    assert received[-1]["termination"]["type"] == "natural_end"
    check_run(received)


async def test_one_of_two_simultaneous_decisions_wins(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    started = await here.start("quick", 'CALL risky {"what": "it"}')
    [ticket] = (await here.settled(started["id"]))["waiting"]["tickets"]
    path = f"/v1/runs/{started['id']}/decisions"

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


async def test_a_cancel_at_the_other_server_stops_the_run(both: tuple[Client, Client]) -> None:
    here, there = both
    async with here.start_stream("endless", "talk") as stream:
        await stream.until("text_delta", 2)
        path = f"/v1/runs/{stream.received[0]['run_id']}/cancel"
        response = await there.http.post(path, params={"wait": 20})
        received = await stream.rest()
    assert response.status_code == 200
    assert response.json()["outcome"] == "cancelled"
    assert received[-1]["termination"]["type"] == "cancelled"


# --- one thread, many starts ----------------------------------------------------------------------


async def test_a_rejected_start_names_the_active_run(both: tuple[Client, Client]) -> None:
    here, there = both
    waiting = await here.start("quick", 'CALL risky {"what": "it"}')
    await here.settled(waiting["id"])
    body = {
        "agent_id": "quick",
        "thread_id": waiting["thread_id"],
        "messages": [{"role": "user", "content": "hello"}],
        "on_active": "reject",
    }
    refused = await there.post("/v1/runs", body, 409)
    assert (refused["code"], refused["active_run_id"]) == ("thread_busy", waiting["id"])
    runs = await here.get(f"/v1/threads/{waiting['thread_id']}/runs")
    assert [run["id"] for run in runs["items"]] == [waiting["id"]]


async def test_a_queued_run_starts_when_the_waiting_run_ends(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(first["id"])
    second = await there.start("quick", "hello", thread_id=first["thread_id"])
    assert second["status"] == "created"
    async with there.events(f"/v1/runs/{second['id']}") as stream:
        await stream.until("run_created")
        await there.decide(waiting, "approve")
        received = await stream.rest()
    assert received[-1]["termination"]["type"] == "natural_end"
    assert (await here.run(first["id"]))["outcome"] == "succeeded"
    check_run(received)
