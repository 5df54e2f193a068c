"""Load on a service while its replicas are replaced, and the checks of its result."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2

from tests.support.conditions import Effects, eventually
from tests.support.event_order import check_run
from tests.support.readers import Received
from tests.support.servers import Server
from tests.support.streams import TIMEOUT_SECONDS, Client, start_body, types_of

Read = Callable[[str, Received], Any]
WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa " * 12
LEAST_RUNS = 2
"""Runs of each client, however soon the replacement ends."""


@dataclass(slots=True)
class LoadRun:
    """A run under load: the events of its client, and the side effects of its tool."""

    run_id: str
    acts: bool
    """Whether it calls a tool with a side effect, or only answers text."""
    effects: Effects
    received: Received = field(default_factory=Received)

    @property
    def prompt(self) -> str:
        """About one second of work, as text or as tool calls."""
        if not self.acts:
            return WORDS
        doze = 'CALL doze {"seconds": 0.2} '
        return f'{3 * doze} CALL send {{"file": "{self.effects.file}"}} {3 * doze}'


@dataclass(slots=True)
class Load:
    """Clients that start one run after the other, and read each to its end.

    Each stops when `enough` is set and it has read `LEAST_RUNS`.
    """

    base: str
    readers: Sequence[Read]
    folder: Path
    runs: list[LoadRun] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    """Statuses of starts that weren't accepted."""
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def one_after_another(self, read: Read) -> None:
        async with Client(self.base) as client:
            for number in itertools.count():
                if number >= LEAST_RUNS and self.enough.is_set():
                    return
                run_id = str(uuid4())
                run = LoadRun(run_id, len(self.runs) % 2 == 0, Effects(self.folder / run_id))
                self.runs.append(run)
                body = start_body("busy", run.prompt, run_id=run_id)
                started = await _start(client, body)
                if started.status_code not in (200, 202):
                    self.refusals.append(started.status_code)
                    return
                async with asyncio.timeout(2 * TIMEOUT_SECONDS):
                    await read(
                        f"{self.base}/v1/runs/{run_id}/events?include=state,trace", run.received
                    )

    async def nothing_is_lost_or_doubled(self, client: Client) -> None:
        assert self.refusals == [], self.refusals
        for run in self.runs:
            path = f"/v1/runs/{run.run_id}"
            assert run.received.events == await client.log(path)
            assert run.received.status == 204
            check_run(run.received.events)
            assert types_of(run.received.events).count("run_finish") == 1
            assert (await client.run(run.run_id))["outcome"] == "succeeded"
            assert len(run.effects.lines) == run.acts
        assert any(run.received.connections > 1 for run in self.runs), "no stream was cut"


async def _start(client: Client, body: dict[str, Any]) -> httpx2.Response:
    """Start a run as a careful client does: it repeats the request with the same run id, three times at most."""
    for _ in range(3):
        try:
            started = await client.http.post("/v1/runs", json=body)
        except httpx2.RemoteProtocolError:
            # The server closed an idle connection while the client sent the request. HTTP/1.1 can't prevent that.
            continue
        if started.status_code == 503 and "Retry-After" in started.headers:
            continue
        return started
    return await client.http.post("/v1/runs", json=body)


@asynccontextmanager
async def under_load(base: str, readers: Sequence[Read], folder: Path) -> AsyncIterator[Load]:
    load = Load(base, readers, folder)
    async with asyncio.TaskGroup() as clients:
        for read in readers:
            clients.create_task(load.one_after_another(read))
        yield load
        load.enough.set()


async def until_it_streams(server: Server) -> None:
    """Wait until a client reads a stream of the server, so that its end cuts one."""

    async def has_open_streams() -> bool:
        async with server.client() as client:
            metrics = (await client.http.get("/metrics")).text
        return re.search(r"^holdfast_streams_open 0", metrics, re.MULTILINE) is None

    await eventually(has_open_streams)


async def ask_to_stop(server: Server) -> None:
    """Terminate a server, and wait until its process has ended."""
    server.terminate()
    assert await server.gone() == 0, server.log
    assert "Traceback" not in server.log, server.log
