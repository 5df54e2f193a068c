"""The journey of a deploy: a server is told to go, and its clients and runs go on at another one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.support.conditions import Effects
from tests.support.event_order import check_run
from tests.support.servers import Server, serving
from tests.support.streams import Client, Event, Stream, start_body, text_of, types_of

pytestmark = pytest.mark.anyio

MANY_WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa " * 60


@pytest.fixture
async def leaving(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    """The server that a deploy replaces; the one of the module stays."""
    async with serving(shared_database_url, agents=agents) as running:
        yield running


async def told_to_go(server: Server, stream: Stream) -> None:
    """Its streams are cut: a clean end would mean that there is nothing more to come."""
    server.terminate()
    with pytest.raises(httpx2.RemoteProtocolError):
        await stream.rest()


async def goes(server: Server) -> None:
    assert await server.gone() == 0, server.log
    assert "Traceback" not in server.log, server.log


async def heard_on(client: Client, stream: Stream) -> list[Event]:
    """What the cut stream had said, and the rest of it from another server."""
    path = f"/v1/runs/{stream.heard[0]['run_id']}"
    async with client.events(path, last_id=stream.last_id) as following:
        heard = stream.heard + await following.rest()
    assert heard == await client.log(path)
    check_run(heard)
    return heard


async def test_an_open_message_is_said_again_by_the_other(client: Client, leaving: Server) -> None:
    async with (
        leaving.client() as theirs,
        theirs.start_stream("talker", MANY_WORDS) as stream,
    ):
        await stream.until("text_delta", 5)
        await told_to_go(leaving, stream)
        await goes(leaving)
        heard = await heard_on(client, stream)
    assert [event["seq"] for event in heard] == list(range(1, len(heard) + 1))
    assert types_of(heard).count("stream_reset") == 1
    assert types_of(heard).count("run_start") == 1
    run = await client.run(heard[0]["run_id"])
    assert run["outcome"] == "succeeded"
    assert text_of(heard) == run["final_output"]


async def test_a_tool_that_is_nearly_done_is_waited_for(
    client: Client, leaving: Server, effects: Effects
) -> None:
    prompt = effects.held("send")
    async with leaving.client() as theirs, theirs.start_stream("quick", prompt) as stream:
        await stream.until("inference_complete")
        await effects.happened()
        await told_to_go(leaving, stream)
        effects.release()
        await goes(leaving)
        heard = await heard_on(client, stream)
    assert heard[-1]["termination"]["type"] == "natural_end"
    assert len(effects.lines) == 1


@pytest.mark.parametrize(
    ("tool", "executions", "ending"), [("put", 2, "natural_end"), ("send", 1, "suspended")]
)
async def test_a_tool_that_takes_too_long_is_cut_short(
    client: Client, leaving: Server, effects: Effects, tool: str, executions: int, ending: str
) -> None:
    """Nobody waits for ever: what may be done again is, and a person is asked about the rest."""
    prompt = effects.held(tool)
    async with leaving.client() as theirs, theirs.start_stream("quick", prompt) as stream:
        await stream.until("inference_complete")
        await effects.happened()
        await told_to_go(leaving, stream)
        await goes(leaving)
        effects.release()
        heard = await heard_on(client, stream)
    assert heard[-1]["termination"]["type"] == ending
    assert len(effects.lines) == executions
    assert len(set(effects.keys)) == 1


async def test_whoever_waits_for_a_run_is_told_how_it_stands(
    client: Client, leaving: Server, effects: Effects
) -> None:
    """A poll that was held to its end would hold up the deploy, and be cut without an answer."""
    held = effects.held("put")
    async with leaving.client() as theirs, asyncio.TaskGroup() as tasks:
        first = await theirs.start("quick", held)
        path = f"/v1/runs/{first['run_id']}"
        polling = tasks.create_task(theirs.http.get(path, params={"wait": 60}))
        starting = tasks.create_task(
            theirs.http.post(
                "/v1/runs", json=start_body("quick", held), headers={"Prefer": "wait=60"}
            )
        )
        await effects.happened(2)
        leaving.terminate()
        answers = [await polling, await starting]
        await goes(leaving)
    effects.release()
    assert [answer.status_code for answer in answers] == [200, 202]
    for answer in answers:
        assert answer.json()["status"] == "running"
        assert (await client.settled(answer.json()["run_id"]))["outcome"] == "succeeded"


async def test_an_idle_server_goes_at_once(leaving: Server) -> None:
    leaving.terminate()
    await goes(leaving)


async def test_a_run_that_waits_is_left_alone(client: Client, leaving: Server) -> None:
    """Nobody held it, so nobody has to take it over."""
    async with leaving.client() as theirs:
        started = await theirs.start("quick", 'CALL risky {"what": "it"}')
        waiting = await theirs.settled(started["run_id"])
    leaving.terminate()
    await goes(leaving)
    assert await client.run(started["run_id"]) == waiting
    await client.decide(waiting, "approve")
    done = await client.settled(started["run_id"])
    assert done["outcome"] == "succeeded"
    check_run(await client.log(f"/v1/runs/{started['run_id']}"))
