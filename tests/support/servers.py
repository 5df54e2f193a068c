"""Holdfast as processes that a test starts, asks and kills: servers and workers on one database."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.support.commands import HOLDFAST, OURS
from tests.support.streams import PATIENCE, Client

P = TypeVar("P", bound="Running")

_QUICK = {
    "port": 0,
    "heartbeat_interval": 0.2,
    "heartbeat_timeout": 2.0,
    "sweep_interval": 0.2,
    "queue_poll": 0.2,
    "log_poll": 0.5,
    "stream_heartbeat": 0.5,
    "handover_grace": 1.0,
    "pool_size": 4,
    "hot_pool_size": 4,
}
_SERVING = re.compile(r"Holdfast serves on (http://\S+)")
_WORKING = re.compile(r"Worker of ")


class Running:
    """A process of ours, and all that it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log = ""
        self._printed = asyncio.Event()

    @property
    def pid(self) -> int:
        return self.process.pid

    async def listen(self) -> None:
        """Read what it prints until it is gone."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.log += line.decode(errors="replace")
            self._printed.set()
        await self.process.wait()
        self._printed.set()

    async def printed(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Wait until it prints something."""
        async with asyncio.timeout(PATIENCE):
            while (found := pattern.search(self.log)) is None:
                assert self.process.returncode is None, self.log
                self._printed.clear()
                await self._printed.wait()
        return found

    def kill(self) -> None:
        """As a machine does that loses power."""
        self.process.kill()

    def terminate(self) -> None:
        """As a deploy does."""
        self.process.send_signal(signal.SIGTERM)

    def freeze(self) -> None:
        """As a machine does that has no time for it."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def logged(self, event: str, **of: object) -> dict[str, Any]:
        """Wait for a line of its log, which is to be of JSON, that says this of whatever is named."""
        wanted = {"event": event, **of}
        seen = 0
        async with asyncio.timeout(PATIENCE):
            while True:
                self._printed.clear()
                lines = self.log.splitlines()
                for line in lines[seen:]:
                    entry = json.loads(line) if line.startswith("{") else {}
                    if wanted.items() <= entry.items():
                        return entry
                seen = len(lines)
                await self._printed.wait()

    async def gone(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()


class Server(Running):
    """A process that serves HTTP."""

    base = ""

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    def client(self, key: str | None = None) -> Client:
        return Client(self.base, key)


@asynccontextmanager
async def serving(
    database_url: str, program: Sequence[str | Path] = (HOLDFAST,), /, **settings: object
) -> AsyncIterator[Server]:
    """`holdfast serve` on a free port; settings by their names, in quick ones' place."""
    process = await _start((*program, "serve"), database_url, settings)
    async with _running(Server(process)) as server:
        server.base = (await server.printed(_SERVING))[1]
        yield server


@asynccontextmanager
async def working(database_url: str, **settings: object) -> AsyncIterator[Running]:
    """`holdfast worker`, which executes runs and serves nobody."""
    async with _running(
        Running(await _start((HOLDFAST, "worker"), database_url, settings))
    ) as worker:
        await worker.printed(_WORKING)
        yield worker


async def _start(
    command: Sequence[str | Path], database_url: str, settings: dict[str, object]
) -> asyncio.subprocess.Process:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(OURS)},
        "DATABASE_URL": database_url,
        **{f"HOLDFAST_{name.upper()}": str(value) for name, value in (_QUICK | settings).items()},
    }
    return await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=1 << 24,
    )


@asynccontextmanager
async def _running(process: P) -> AsyncIterator[P]:
    listening = asyncio.get_running_loop().create_task(process.listen())
    try:
        yield process
    finally:
        if process.process.returncode is None:
            process.kill()
        await listening
