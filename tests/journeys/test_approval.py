"""The journey of an approval: start, stream, suspend, decide, finish."""

from typing import Any

import pytest

from tests.support.streams import Client, text_of, types_of

pytestmark = pytest.mark.anyio

ADD_AND_ASK = 'CALL add {"a": 2, "b": 3} CALL risky {"what": "it"}'


async def test_a_run_waits_for_a_decision_and_then_finishes(client: Client) -> None:
    async with client.start_stream("quick", ADD_AND_ASK) as stream:
        received = await stream.rest()
    run_id = received[0]["run_id"]
    assert stream.response.headers["location"] == f"/v1/runs/{run_id}/events"
    assert stream.response.headers["content-location"] == f"/v1/runs/{run_id}"
    assert types_of(received)[:2] == ["run_created", "run_start"]
    assert received[-1]["termination"] == {"type": "suspended"}
    waiting = await client.run(run_id)
    assert waiting["status"] == "waiting"
    [ticket] = waiting["waiting"]["tickets"]
    finish = received[-1]["waiting"]
    assert finish["needs_decision"] is True
    assert [each["id"] for each in finish["tickets"]] == [ticket["id"]]

    async with client.events(f"/v1/runs/{run_id}", last_id=stream.last_id) as stream:
        await client.decide(waiting, "approve")
        resumed = await stream.rest()
    done = await client.run(run_id)
    assert (done["status"], done["outcome"]) == ("done", "succeeded")
    assert done["waiting"] is None
    assert done["final_output"] == text_of(received + resumed)
    assert "did it" in done["final_output"]
    assert received + resumed == await client.log(f"/v1/runs/{run_id}")


@pytest.mark.parametrize(
    ("action", "more", "read_by_the_model"),
    [
        ("edit", {"arguments": {"what": "that"}}, "did that"),
        ("respond", {"result": "done by hand"}, "done by hand"),
        ("reject", {"reason": "too risky"}, "Denied: too risky"),
        ("cancel", {"reason": "not needed"}, "not needed"),
    ],
)
async def test_the_model_reads_the_result_of_each_decision(
    client: Client, action: str, more: dict[str, Any], read_by_the_model: str
) -> None:
    started = await client.start("quick", 'CALL risky {"what": "it"}')
    waiting = await client.settled(started["id"])
    await client.decide(waiting, action, **more)
    done = await client.settled(started["id"])
    assert done["outcome"] == "succeeded"
    assert read_by_the_model in done["final_output"]


async def test_parallel_calls_wait_until_all_tickets_are_decided(
    client: Client,
) -> None:
    started = await client.start("quick", 'CALLS 3 risky {"what": "it"}')
    run_id = started["id"]
    tickets = (await client.settled(run_id))["waiting"]["tickets"]
    assert len(tickets) == 3
    left = 3
    for ticket in reversed(tickets):
        body = {"decisions": [{"ticket_id": ticket["id"], "action": "approve"}]}
        answer = await client.post(f"/v1/runs/{run_id}/decisions", body)
        left -= 1
        assert len(answer["open_tickets"]) == left
    done = await client.settled(run_id)
    while done["status"] != "done":
        done = await client.settled(run_id)
    assert done["final_output"].count("did it") == 3
