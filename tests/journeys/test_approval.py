"""The journey of an approval: start, stream, suspend, decide, finish."""

import pytest

from tests.support.streams import Client, text_of, types_of

pytestmark = pytest.mark.anyio

ASK = 'CALL add {"a": 2, "b": 3} CALL risky {"what": "it"}'


async def test_a_run_suspends_for_a_decision_and_finishes_by_it(client: Client) -> None:
    async with client.start_stream("quick", ASK) as stream:
        heard = await stream.rest()
        run_id = heard[0]["run_id"]
        assert stream.response.headers["location"] == f"/v1/runs/{run_id}/events"
        assert stream.response.headers["content-location"] == f"/v1/runs/{run_id}"
    assert [heard[0]["event_type"], heard[1]["event_type"]] == ["run_created", "run_start"]
    assert heard[-1]["termination"] == {"type": "suspended"}
    print(types_of(heard))
    waiting = await client.run(run_id)
    assert waiting["status"] == "waiting"
    assert heard[-1]["waiting"] == waiting["waiting"]
    async with client.events(f"/v1/runs/{run_id}", last_id=stream.last_id) as stream:
        decided = await client.decide(waiting, "approve")
        assert decided["results"][0]["status"] == "accepted"
        assert decided["open_tickets"] == []
        resumed = await stream.rest()
    print(types_of(resumed))
    done = await client.run(run_id)
    assert done["outcome"] == "succeeded"
    assert text_of(heard + resumed) == done["final_output"]
    assert heard + resumed == await client.log(f"/v1/runs/{run_id}")
