"""A deploy: a server is stopped, and its clients and runs continue on another one."""

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
async def stopping(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    """The server that a deploy replaces; the one of the module stays."""
    async with serving(shared_database_url, agents=agents) as running:
        yield running


async def ask_to_stop(server: Server, stream: Stream) -> None:
    """Terminate the server and expect its streams to break: a clean end would mean that the run has ended."""
    server.terminate()
    with pytest.raises(httpx2.RemoteProtocolError):
        await stream.rest()


async def stops_cleanly(server: Server) -> None:
    assert await server.gone() == 0, server.log
    assert "Traceback" not in server.log, server.log


async def received_on(client: Client, stream: Stream) -> list[Event]:
    """The events of the cut stream, continued on another server."""
    path = f"/v1/runs/{stream.received[0]['run_id']}"
    async with client.events(path, last_id=stream.last_id) as following:
        received = stream.received + await following.rest()
    assert received == await client.log(path)
    check_run(received)
    return received


async def test_an_open_message_is_streamed_again_by_another_server(
    client: Client, stopping: Server
) -> None:
    async with (
        stopping.client() as its_client,
        its_client.start_stream("talker", MANY_WORDS) as stream,
    ):
        await stream.until("text_delta", 5)
        await ask_to_stop(stopping, stream)
        await stops_cleanly(stopping)
        received = await received_on(client, stream)
    assert [event["seq"] for event in received] == list(range(1, len(received) + 1))
    assert types_of(received).count("stream_reset") == 1
    assert types_of(received).count("run_start") == 1
    run = await client.run(received[0]["run_id"])
    assert run["outcome"] == "succeeded"
    assert text_of(received) == run["final_output"]


async def test_a_stopping_server_waits_for_a_tool_within_its_grace_period(
    client: Client, stopping: Server, effects: Effects
) -> None:
    prompt = effects.held("send")
    async with stopping.client() as its_client, its_client.start_stream("quick", prompt) as stream:
        await stream.until("inference_complete")
        await effects.happened()
        await ask_to_stop(stopping, stream)
        effects.release()
        await stops_cleanly(stopping)
        received = await received_on(client, stream)
    assert received[-1]["termination"]["type"] == "natural_end"
    assert len(effects.lines) == 1


@pytest.mark.parametrize(
    ("tool", "executions", "ending"), [("put", 2, "natural_end"), ("send", 1, "suspended")]
)
async def test_a_stopping_server_interrupts_a_tool_after_its_grace_period(
    client: Client, stopping: Server, effects: Effects, tool: str, executions: int, ending: str
) -> None:
    """An idempotent call is repeated elsewhere; for an unsafe call a ticket is opened."""
    prompt = effects.held(tool)
    async with stopping.client() as its_client, its_client.start_stream("quick", prompt) as stream:
        await stream.until("inference_complete")
        await effects.happened()
        await ask_to_stop(stopping, stream)
        await stops_cleanly(stopping)
        effects.release()
        received = await received_on(client, stream)
    assert received[-1]["termination"]["type"] == ending
    assert len(effects.lines) == executions
    assert len(set(effects.keys)) == 1


async def test_long_polls_are_answered_with_the_current_run_when_the_server_stops(
    client: Client, stopping: Server, effects: Effects
) -> None:
    """An open poll would delay the deploy, or break without an answer."""
    held = effects.held("put")
    async with stopping.client() as its_client, asyncio.TaskGroup() as tasks:
        first = await its_client.start("quick", held)
        path = f"/v1/runs/{first['id']}"
        polling = tasks.create_task(its_client.http.get(path, params={"wait": 60}))
        starting = tasks.create_task(
            its_client.http.post(
                "/v1/runs", json=start_body("quick", held), headers={"Prefer": "wait=60"}
            )
        )
        await effects.happened(2)
        stopping.terminate()
        answers = [await polling, await starting]
        await stops_cleanly(stopping)
    effects.release()
    assert [answer.status_code for answer in answers] == [200, 202]
    for answer in answers:
        assert answer.json()["status"] == "running"
        assert (await client.settled(answer.json()["id"]))["outcome"] == "succeeded"


async def test_an_idle_server_stops_at_once(stopping: Server) -> None:
    stopping.terminate()
    await stops_cleanly(stopping)


async def test_a_waiting_run_is_unchanged_by_a_deploy(client: Client, stopping: Server) -> None:
    """No worker owns a waiting run, so none has to take it over."""
    async with stopping.client() as its_client:
        started = await its_client.start("quick", 'CALL risky {"what": "it"}')
        waiting = await its_client.settled(started["id"])
    stopping.terminate()
    await stops_cleanly(stopping)
    assert await client.run(started["id"]) == waiting
    await client.decide(waiting, "approve")
    done = await client.settled(started["id"])
    assert done["outcome"] == "succeeded"
    check_run(await client.log(f"/v1/runs/{started['id']}"))
