"""The journey of messages past dying servers: what was accepted is read once, whoever dies when."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.support.conditions import Effects
from tests.support.conversations import said, texts
from tests.support.invariants import broken_invariants
from tests.support.servers import Server, serving
from tests.support.streams import Client, types_of

pytestmark = pytest.mark.anyio


class Servers:
    """Processes that a test starts and loses."""

    def __init__(self, stack: AsyncExitStack, database_url: str, agents: Path) -> None:
        self._stack = stack
        self._database_url = database_url
        self._agents = agents

    async def start(self, role: str = "all") -> tuple[Server, Client]:
        server = await self._stack.enter_async_context(
            serving(self._database_url, agents=self._agents, role=role)
        )
        return server, await self._stack.enter_async_context(server.client())

    async def start_at_work(
        self, effects: Effects, tool: str = "put"
    ) -> tuple[Server, Client, dict[str, Any]]:
        """One more, and a run of its that is in the middle of a call."""
        server, client = await self.start()
        run = await client.start("quick", effects.held(tool))
        await effects.happened()
        return server, client, run


async def lose(*servers: Server) -> None:
    for server in servers:
        server.kill()
        await server.gone()


@pytest.fixture
async def servers(database_url: str, agents: Path) -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        yield Servers(stack, database_url, agents)


async def assert_read_once(client: Client, run: dict[str, Any], *messages: str) -> None:
    """Each in the log once, at the place that its delivery has told, and the run has gone on with it."""
    assert (await client.settled(run["run_id"]))["outcome"] == "succeeded"
    thread = f"/v1/threads/{run['thread_id']}"
    log = await texts(client, run["thread_id"])
    for text in messages:
        assert log.count(("user", text)) == 1
    page = await client.get(f"{thread}/inputs", status="consumed", limit=200)
    read = [item for item in page["items"] if item["message"]["content"][0]["text"] in messages]
    events = await client.log(f"/v1/runs/{run['run_id']}")
    told = [event for event in events if event["event_type"] == "input_delivered"]
    for item in read:
        [delivered] = [event for event in told if event["input_id"] == item["id"]]
        assert delivered["message_seq"] == item["seq"]
    assert len(read) == len(messages)


async def test_the_server_dies_that_took_it_and_nobody_was_there_to_be_woken(
    servers: Servers, database_url: str, effects: Effects
) -> None:
    """The run waits for its tasks; the message is committed while no process could go on with it."""
    first, there = await servers.start()
    run = await there.start("patient", effects.held("put"))
    await effects.happened()
    assert (await there.settled(run["run_id"]))["status"] == "waiting"
    second, here = await servers.start(role="api")
    await lose(first)
    await here.post(f"/v1/runs/{run['run_id']}/inputs", said("are you there?"), 202)
    await lose(second)
    _, client = await servers.start()
    async with client.events(f"/v1/runs/{run['run_id']}", follow=1) as stream:
        await stream.until("input_delivered")
        effects.release()
        await stream.rest()
    await assert_read_once(client, run, "are you there?")
    assert await broken_invariants(database_url) == {}


async def test_the_server_dies_before_the_next_border_of_steps(
    servers: Servers, database_url: str, effects: Effects
) -> None:
    """Accepted in the middle of a call, which another one finishes."""
    first, there, run = await servers.start_at_work(effects)
    await there.post(f"/v1/runs/{run['run_id']}/inputs", said("and this"), 202)
    await lose(first)
    _, client = await servers.start()
    await effects.happened(2)
    effects.release()
    await assert_read_once(client, run, "and this")
    assert await broken_invariants(database_url) == {}


async def test_the_server_dies_that_has_just_read_it(
    servers: Servers, database_url: str, effects: Effects, tmp_path: Path
) -> None:
    """It is in the log, and the run is at work on it."""
    first, there, run = await servers.start_at_work(effects)
    more = Effects(tmp_path / "more")
    message = more.held("put")
    await there.post(f"/v1/runs/{run['run_id']}/inputs", said(message), 202)
    effects.release()
    await more.happened()
    await lose(first)
    _, client = await servers.start()
    await more.happened(2)
    more.release()
    await assert_read_once(client, run, message)
    assert len(set(more.keys)) == 1
    assert await broken_invariants(database_url) == {}


async def test_the_server_dies_before_a_message_in_line_has_its_turn(
    servers: Servers, database_url: str, effects: Effects
) -> None:
    first, there, run = await servers.start_at_work(effects)
    path = f"/v1/threads/{run['thread_id']}/messages"
    queued = await there.post(path, said("and then this", "queue"), 202)
    effects.release()
    await lose(first)
    _, client = await servers.start()
    await assert_read_once(client, queued, "and then this")
    assert (await client.run(run["run_id"]))["outcome"] == "succeeded"
    assert await broken_invariants(database_url) == {}


async def test_who_asks_again_after_a_lost_answer_is_heard_once(
    servers: Servers, database_url: str, effects: Effects
) -> None:
    """A client of a dying server sends what it has no answer for to another one, under the same key."""
    first, there, run = await servers.start_at_work(effects)
    _, here = await servers.start(role="api")
    path = f"/v1/runs/{run['run_id']}/inputs"
    answered = asyncio.Event()

    async def send(n: int) -> None:
        headers = {"Idempotency-Key": str(uuid4())}
        body = said(f"message {n}")
        try:
            told = await there.http.post(path, json=body, headers=headers)
        except httpx2.TransportError:
            told = await here.http.post(path, json=body, headers=headers)
        assert told.status_code == 202, told.text
        answered.set()

    async with asyncio.TaskGroup() as clients:
        for n in range(30):
            clients.create_task(send(n))
        await answered.wait()
        await lose(first)
    _, client = await servers.start()
    effects.release()
    await assert_read_once(client, run, *(f"message {n}" for n in range(30)))
    assert await broken_invariants(database_url) == {}


async def test_the_server_dies_that_was_to_roll_its_run_back(
    servers: Servers, database_url: str, effects: Effects
) -> None:
    first, _, run = await servers.start_at_work(effects, tool="look")
    second, here = await servers.start(role="api")
    await lose(first)
    place = {"thread_id": run["thread_id"]}
    wanted = await here.start("quick", "no, this", **place, on_active="rollback")
    await lose(second)
    _, client = await servers.start()
    assert (await client.settled(wanted["run_id"]))["outcome"] == "succeeded"
    gone = await client.run(run["run_id"])
    assert (gone["outcome"], gone["rolled_back_by"]) == ("cancelled", wanted["run_id"])
    users = [text for role, text in await texts(client, run["thread_id"]) if role == "user"]
    assert users == ["no, this"]
    assert types_of(await client.log(f"/v1/runs/{run['run_id']}"))[-2:] == [
        "rolled_back",
        "run_finish",
    ]
    assert await broken_invariants(database_url) == {}
