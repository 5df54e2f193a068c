"""One journey through everything that needs the database, over two servers that share it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

from tests.support.conditions import Effects
from tests.support.event_order import check_run
from tests.support.servers import Server, serving
from tests.support.streams import Client, start_body, text_of

WORDS = "one two three four five six seven eight nine ten eleven twelve " * 6
ASK = 'CALL risky {"what": "it"}'


@dataclass(frozen=True, slots=True)
class ServerPair:
    """Two servers and a client of each; tools write their effects into a folder."""

    here: Client
    there: Client
    first: Server
    second: Server
    marks: Path

    def effects(self) -> Effects:
        return Effects(self.marks / str(uuid4()))


@asynccontextmanager
async def server_pair(url: str, folder: Path, **settings: object) -> AsyncIterator[ServerPair]:
    """Two servers with the same settings."""
    async with (
        serving(url, **settings) as first,
        serving(url, **settings) as second,
        first.client() as here,
        second.client() as there,
    ):
        yield ServerPair(here, there, first, second, folder)


async def finished(client: Client, run_id: str) -> None:
    while (run := await client.settled(run_id))["status"] != "done":
        pass
    assert run["outcome"] == "succeeded", run
    check_run(await client.log(f"/v1/runs/{run_id}"))


async def a_run_is_streamed_by_both(pair: ServerPair) -> None:
    """Token by token, on the server that executes and on the other one."""
    async with pair.here.start_stream("talker", WORDS) as stream:
        await stream.until("text_delta", 2)
        path = f"/v1/runs/{stream.received[0]['run_id']}"
        async with pair.there.events(path) as other:
            received_there = await other.rest()
        received = await stream.rest()
    assert received == received_there
    assert text_of(received) == (await pair.here.run(received[0]["run_id"]))["final_output"]


async def tickets_are_decided(pair: ServerPair) -> None:
    """Many at once, each started on one server and decided on the other; a repetition gives the same answer."""

    async def one() -> None:
        started = await pair.here.start("quick", ASK)
        waiting = await pair.there.settled(started["id"])
        ticket = waiting["waiting"]["tickets"][0]["id"]
        body = {"decisions": [{"ticket_id": ticket, "action": "approve"}]}
        path = f"/v1/runs/{started['id']}/decisions"
        await pair.there.post(path, body)
        await pair.here.post(path, body)
        await finished(pair.here, started["id"])

    await asyncio.gather(*(one() for _ in range(12)))
    inbox = await pair.here.get("/v1/tickets", status="open")
    assert inbox["items"] == []


async def a_key_has_one_effect(pair: ServerPair) -> None:
    """Under one key, through both servers, at once."""
    headers = {"Idempotency-Key": str(uuid4())}
    body = start_body("quick", "hello")
    answers = [
        await client.http.post("/v1/runs", json=body, headers=headers)
        for client in (pair.here, pair.there, pair.here)
    ]
    assert {answer.status_code for answer in answers} == {202}
    [run_id] = {answer.json()["id"] for answer in answers}
    await finished(pair.there, run_id)


async def runs_queue_on_a_thread(pair: ServerPair) -> None:
    thread = await pair.here.post("/v1/threads", {}, 201)
    started = await asyncio.gather(
        *(
            client.start("quick", "hello", thread_id=thread["id"])
            for client in (pair.here, pair.there) * 5
        )
    )
    for run in started:
        await finished(pair.here, run["id"])
    await pair.here.log(f"/v1/threads/{thread['id']}")


async def a_cancel_settles(pair: ServerPair) -> None:
    async with pair.here.start_stream("endless", "talk") as stream:
        await stream.until("text_delta", 2)
        path = f"/v1/runs/{stream.received[0]['run_id']}/cancel"
        response = await pair.there.http.post(path, params={"wait": 20})
        assert response.json()["outcome"] == "cancelled"
        await stream.rest()


async def tasks_run_in_the_background(pair: ServerPair) -> None:
    """The run waits without a worker, and is woken by the queue."""
    effects = pair.effects()
    started = await pair.here.start(
        "patient", f'CALL put {{"file": "{effects.file}", "hold": true}}'
    )
    await effects.happened()
    effects.release()
    await finished(pair.there, started["id"])
    assert len(effects.lines) == 1


Leg: TypeAlias = Callable[[ServerPair], Awaitable[None]]
LEGS = (
    a_run_is_streamed_by_both,
    tickets_are_decided,
    a_key_has_one_effect,
    runs_queue_on_a_thread,
    a_cancel_settles,
    tasks_run_in_the_background,
)


async def a_lost_servers_runs_are_taken_over(pair: ServerPair) -> None:
    """The sweeper requeues the runs of the killed first server. Run it last: that server stays dead."""
    effects = pair.effects()
    started = await pair.here.start(
        "quick", f'CALL look {{"file": "{effects.file}", "hold": true}}'
    )
    await effects.happened()
    pair.first.kill()
    await pair.first.gone()
    effects.release()
    await finished(pair.there, started["id"])
    run = await pair.there.run(started["id"])
    assert run["attempt"] == 2
    assert len(set(effects.keys)) == 1
