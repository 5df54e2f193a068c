"""Load on a service while its replicas are replaced one after the other, and what has to hold of it then."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.support.conditions import Effects
from tests.support.event_order import check_run
from tests.support.readers import Heard
from tests.support.servers import Server
from tests.support.streams import PATIENCE, Client, start_body, types_of

Read = Callable[[str, Heard], Any]
WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa " * 12


@dataclass(slots=True)
class Heeded:
    """A run as its client knows it: what it was given, and what its tool has done."""

    run_id: str
    acts: bool
    """Whether it calls a tool that leaves something behind, or only speaks."""
    effects: Effects
    heard: Heard = field(default_factory=Heard)

    @property
    def prompt(self) -> str:
        """A second or so of work, in small steps or in one."""
        if not self.acts:
            return WORDS
        doze = 'CALL doze {"seconds": 0.2} '
        return f'{3 * doze} CALL send {{"file": "{self.effects.file}"}} {3 * doze}'


@dataclass(slots=True)
class Load:
    """Clients that start a run, hear it out, and start the next, until they are told that it is enough."""

    base: str
    readers: Sequence[Read]
    folder: Path
    runs: list[Heeded] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    """Statuses of starts that weren't accepted."""
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def one_after_another(self, read: Read) -> None:
        async with Client(self.base) as client:
            while not self.enough.is_set():
                run_id = str(uuid4())
                run = Heeded(run_id, len(self.runs) % 2 == 0, Effects(self.folder / run_id))
                self.runs.append(run)
                body = start_body("busy", run.prompt, run_id=run_id)
                started = await client.http.post("/v1/runs", json=body)
                if started.status_code == 503 and "Retry-After" in started.headers:
                    # As it is told: again, under the same id.
                    started = await client.http.post("/v1/runs", json=body)
                if started.status_code not in (200, 202):
                    self.refusals.append(started.status_code)
                    return
                async with asyncio.timeout(2 * PATIENCE):
                    await read(f"{self.base}/v1/runs/{run_id}/events", run.heard)

    async def nothing_is_lost_or_doubled(self, client: Client) -> None:
        assert self.refusals == [], self.refusals
        assert len(self.runs) >= 2 * len(self.readers)
        for run in self.runs:
            path = f"/v1/runs/{run.run_id}"
            assert run.heard.events == await client.log(path)
            assert run.heard.status == 204
            check_run(run.heard.events)
            assert types_of(run.heard.events).count("run_finish") == 1
            assert (await client.run(run.run_id))["outcome"] == "succeeded"
            assert len(run.effects.lines) == run.acts
        assert any(run.heard.connections > 1 for run in self.runs), "nobody was cut off"


@asynccontextmanager
async def under_load(base: str, readers: Sequence[Read], folder: Path) -> AsyncIterator[Load]:
    load = Load(base, readers, folder)
    async with asyncio.TaskGroup() as clients:
        for read in readers:
            clients.create_task(load.one_after_another(read))
        yield load
        load.enough.set()


async def told_to_go(server: Server) -> None:
    """Terminate a server, and wait until its process has ended."""
    server.terminate()
    assert await server.gone() == 0, server.log
    assert "Traceback" not in server.log, server.log
