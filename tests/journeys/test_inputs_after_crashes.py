"""Messages and dying servers: an accepted message is read once, at each point where a server dies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.support.conditions import Effects
from tests.support.conversations import message_body, texts
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

    async def start_with_held_call(
        self, effects: Effects, tool: str = "put"
    ) -> tuple[Server, Client, dict[str, Any]]:
        """One more server, with a run that is in the middle of a call."""
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
    """Each message is in the log once, at the seq of its `input_delivered` event, and the run succeeded."""
    assert (await client.settled(run["id"]))["outcome"] == "succeeded"
    thread = f"/v1/threads/{run['thread_id']}"
    log = await texts(client, run["thread_id"])
    for text in messages:
        assert log.count(("user", text)) == 1
    page = await client.get(f"{thread}/inputs", status="consumed", limit=200)
    read = [item for item in page["items"] if item["message"]["content"][0]["text"] in messages]
    events = await client.log(f"/v1/runs/{run['id']}")
    deliveries = [event for event in events if event["event_type"] == "input_delivered"]
    for item in read:
        [delivered] = [event for event in deliveries if event["input_id"] == item["id"]]
        assert delivered["message_seq"] == item["seq"]
    assert len(read) == len(messages)


async def test_a_message_survives_a_crash_while_no_worker_runs(
    servers: Servers, database_url: str, effects: Effects
) -> None:
    """The run waits for its tasks; the message is committed while no worker runs."""
    first, there = await servers.start()
    run = await there.start("patient", effects.held("put"))
    await effects.happened()
    assert (await there.settled(run["id"]))["status"] == "waiting"
    second, here = await servers.start(role="api")
    await lose(first)
    await here.post(f"/v1/runs/{run['id']}/inputs", message_body("are you there?"), 202)
    await lose(second)
    _, client = await servers.start()
    async with client.events(f"/v1/runs/{run['id']}", follow=1) as stream:
        await stream.until("input_delivered")
        effects.release()
        await stream.rest()
    await assert_read_once(client, run, "are you there?")
    assert await broken_invariants(database_url) == {}


async def test_a_message_survives_a_crash_before_the_next_step(
    servers: Servers, database_url: str, effects: Effects
) -> None:
    """The message is accepted in the middle of a call, which another server finishes."""
    first, there, run = await servers.start_with_held_call(effects)
    await there.post(f"/v1/runs/{run['id']}/inputs", message_body("and this"), 202)
    await lose(first)
    _, client = await servers.start()
    await effects.happened(2)
    effects.release()
    await assert_read_once(client, run, "and this")
    assert await broken_invariants(database_url) == {}


async def test_a_message_survives_a_crash_right_after_it_is_read(
    servers: Servers, database_url: str, effects: Effects, tmp_path: Path
) -> None:
    """The message is in the log, and the run executes the call that it asks for."""
    first, there, run = await servers.start_with_held_call(effects)
    more = Effects(tmp_path / "more")
    message = more.held("put")
    await there.post(f"/v1/runs/{run['id']}/inputs", message_body(message), 202)
    effects.release()
    await more.happened()
    await lose(first)
    _, client = await servers.start()
    await more.happened(2)
    more.release()
    await assert_read_once(client, run, message)
    assert len(set(more.keys)) == 1
    assert await broken_invariants(database_url) == {}


async def test_a_queued_message_survives_a_crash_before_its_run_starts(
    servers: Servers, database_url: str, effects: Effects
) -> None:
    first, there, run = await servers.start_with_held_call(effects)
    path = f"/v1/threads/{run['thread_id']}/messages"
    queued = await there.post(path, message_body("and then this", "queue"), 202)
    effects.release()
    await lose(first)
    _, client = await servers.start()
    await assert_read_once(client, await client.run(queued["run_id"]), "and then this")
    assert (await client.run(run["id"]))["outcome"] == "succeeded"
    assert await broken_invariants(database_url) == {}


async def test_a_message_repeated_after_a_crash_is_read_once(
    servers: Servers, database_url: str, effects: Effects
) -> None:
    """A client repeats its unanswered requests at another server, under the same key."""
    first, there, run = await servers.start_with_held_call(effects)
    _, here = await servers.start(role="api")
    path = f"/v1/runs/{run['id']}/inputs"
    answered = asyncio.Event()

    async def send(n: int) -> None:
        headers = {"Idempotency-Key": str(uuid4())}
        body = message_body(f"message {n}")
        try:
            accepted = await there.http.post(path, json=body, headers=headers)
        except httpx2.TransportError:
            accepted = await here.http.post(path, json=body, headers=headers)
        assert accepted.status_code == 202, accepted.text
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


async def test_a_rollback_survives_a_crash_of_its_server(
    servers: Servers, database_url: str, effects: Effects
) -> None:
    first, _, run = await servers.start_with_held_call(effects, tool="look")
    second, here = await servers.start(role="api")
    await lose(first)
    on_thread = {"thread_id": run["thread_id"]}
    replacement = await here.start("quick", "no, this", **on_thread, on_active="rollback")
    await lose(second)
    _, client = await servers.start()
    assert (await client.settled(replacement["id"]))["outcome"] == "succeeded"
    rolled_back = await client.run(run["id"])
    assert (rolled_back["outcome"], rolled_back["rolled_back_by_run_id"]) == (
        "cancelled",
        replacement["id"],
    )
    users = [text for role, text in await texts(client, run["thread_id"]) if role == "user"]
    assert users == ["no, this"]
    assert types_of(await client.log(f"/v1/runs/{run['id']}"))[-2:] == [
        "rolled_back",
        "run_finish",
    ]
    assert await broken_invariants(database_url) == {}
