"""One journey through all that a database is needed for, over two servers that share one."""

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
class Travellers:
    """Two servers and a client of each; tools leave their marks in a folder."""

    here: Client
    there: Client
    first: Server
    second: Server
    marks: Path

    def effects(self) -> Effects:
        return Effects(self.marks / str(uuid4()))


@asynccontextmanager
async def travelling(url: str, folder: Path, **settings: object) -> AsyncIterator[Travellers]:
    """Two servers with the same settings."""
    async with (
        serving(url, **settings) as first,
        serving(url, **settings) as second,
        first.client() as here,
        second.client() as there,
    ):
        yield Travellers(here, there, first, second, folder)


async def finished(client: Client, run_id: str) -> None:
    while (run := await client.settled(run_id))["status"] != "done":
        pass
    assert run["outcome"] == "succeeded", run
    check_run(await client.log(f"/v1/runs/{run_id}"))


async def a_run_is_streamed_by_both(we: Travellers) -> None:
    """Token by token, on the server that executes and on the other one."""
    async with we.here.start_stream("talker", WORDS) as stream:
        await stream.until("text_delta", 2)
        path = f"/v1/runs/{stream.heard[0]['run_id']}"
        async with we.there.events(path) as other:
            elsewhere = await other.rest()
        heard = await stream.rest()
    assert heard == elsewhere
    assert text_of(heard) == (await we.here.run(heard[0]["run_id"]))["final_output"]


async def tickets_are_decided(we: Travellers) -> None:
    """Many at once, each started here and decided there; a repetition is the same answer."""

    async def one() -> None:
        started = await we.here.start("quick", ASK)
        waiting = await we.there.settled(started["run_id"])
        ticket = waiting["waiting"]["tickets"][0]["id"]
        body = {"decisions": [{"ticket_id": ticket, "action": "approve"}]}
        path = f"/v1/runs/{started['run_id']}/decisions"
        await we.there.post(path, body)
        await we.here.post(path, body)
        await finished(we.here, started["run_id"])

    await asyncio.gather(*(one() for _ in range(12)))
    inbox = await we.here.get("/v1/tickets", status="open")
    assert inbox["items"] == []


async def a_key_has_one_effect(we: Travellers) -> None:
    """Under one key, through both servers, at once."""
    headers = {"Idempotency-Key": str(uuid4())}
    body = start_body("quick", "hello")
    answers = [
        await client.http.post("/v1/runs", json=body, headers=headers)
        for client in (we.here, we.there, we.here)
    ]
    assert {answer.status_code for answer in answers} == {202}
    [run_id] = {answer.json()["run_id"] for answer in answers}
    await finished(we.there, run_id)


async def runs_queue_on_a_thread(we: Travellers) -> None:
    thread = await we.here.post("/v1/threads", {}, 201)
    started = await asyncio.gather(
        *(
            client.start("quick", "hello", thread_id=thread["thread_id"])
            for client in (we.here, we.there) * 5
        )
    )
    for run in started:
        await finished(we.here, run["run_id"])
    await we.here.log(f"/v1/threads/{thread['thread_id']}")


async def a_cancel_settles(we: Travellers) -> None:
    async with we.here.start_stream("endless", "talk") as stream:
        await stream.until("text_delta", 2)
        path = f"/v1/runs/{stream.heard[0]['run_id']}/cancel"
        response = await we.there.http.post(path, params={"wait": 20})
        assert response.json()["outcome"] == "cancelled"
        await stream.rest()


async def tasks_go_on_in_the_background(we: Travellers) -> None:
    """The run waits without a worker, and is woken by the queue."""
    effects = we.effects()
    started = await we.here.start("patient", f'CALL put {{"file": "{effects.file}", "hold": true}}')
    await effects.happened()
    effects.release()
    await finished(we.there, started["run_id"])
    assert len(effects.lines) == 1


Leg: TypeAlias = Callable[[Travellers], Awaitable[None]]
LEGS = (
    a_run_is_streamed_by_both,
    tickets_are_decided,
    a_key_has_one_effect,
    runs_queue_on_a_thread,
    a_cancel_settles,
    tasks_go_on_in_the_background,
)


async def a_lost_servers_runs_are_taken_over(we: Travellers) -> None:
    """The sweeper finds what the first server was at. The last leg: nobody can use that server afterwards."""
    effects = we.effects()
    started = await we.here.start("quick", f'CALL look {{"file": "{effects.file}", "hold": true}}')
    await effects.happened()
    we.first.kill()
    await we.first.gone()
    effects.release()
    await finished(we.there, started["run_id"])
    run = await we.there.run(started["run_id"])
    assert run["attempt"] == 2
    assert len(set(effects.keys)) == 1
