"""Servers and workers as processes that a test starts, uses and kills."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from weakref import WeakValueDictionary

from tests.support.commands import HOLDFAST, OURS
from tests.support.forked.process import ForkedProcess, start_forked
from tests.support.streams import TIMEOUT_SECONDS, Client

P = TypeVar("P", bound="Running")

_QUICK = {
    "port": 0,
    "health_port": 0,
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
_HEALTH = re.compile(r"health +(http://\S+)/health")


class Running:
    """A Holdfast process, and its output."""

    def __init__(self, process: asyncio.subprocess.Process | ForkedProcess) -> None:
        self.process = process
        self.log = ""
        self._printed = asyncio.Event()

    @property
    def pid(self) -> int:
        return self.process.pid

    async def listen(self) -> None:
        """Read its output until it exits."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.log += line.decode(errors="replace")
            self._printed.set()
        await self.process.wait()
        self._printed.set()

    async def printed(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Wait for a match in its output."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (found := pattern.search(self.log)) is None:
                assert self.process.returncode is None, self.log
                self._printed.clear()
                await self._printed.wait()
        return found

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.kill()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Send SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def logged(self, event: str, **of: object) -> dict[str, Any]:
        """Wait for a JSON log line of this event with these fields."""
        wanted = {"event": event, **of}
        seen = 0
        async with asyncio.timeout(TIMEOUT_SECONDS):
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
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self.process.wait()


class Server(Running):
    """A process that serves HTTP."""

    base = ""
    by_base: ClassVar[WeakValueDictionary[str, "Server"]] = WeakValueDictionary()
    """The last server at each address, so that a failed test can keep its log."""

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    def client(self, key: str | None = None) -> Client:
        return Client(self.base, key)


class WorkerProcess(Running):
    """A process that only executes runs; `base` is where its health and metrics are."""

    base = ""


@asynccontextmanager
async def serving(
    database_url: str, program: Sequence[str | Path] = (HOLDFAST,), /, **settings: object
) -> AsyncIterator[Server]:
    """`holdfast serve` on a free port; the settings override the short test defaults.

    It begins as a fork of a process that has imported Holdfast, unless another program is named.
    """
    process = await _start((*program, "serve"), database_url, settings)
    async with _running(Server(process)) as server:
        server.base = (await server.printed(_SERVING))[1]
        Server.by_base[server.base] = server
        yield server


@asynccontextmanager
async def working(database_url: str, **settings: object) -> AsyncIterator[WorkerProcess]:
    """`holdfast worker`, which executes runs and serves only health and metrics."""
    process = await _start((HOLDFAST, "worker"), database_url, settings)
    async with _running(WorkerProcess(process)) as worker:
        await worker.printed(_WORKING)
        if settings.get("health_port") != "off":
            worker.base = (await worker.printed(_HEALTH))[1]
        yield worker


async def _start(
    command: Sequence[str | Path], database_url: str, settings: dict[str, object]
) -> asyncio.subprocess.Process | ForkedProcess:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(OURS)},
        "DATABASE_URL": database_url,
        **{f"HOLDFAST_{name.upper()}": str(value) for name, value in (_QUICK | settings).items()},
    }
    # Metrics of several processes are chosen by a variable that the imports read.
    if command[0] == HOLDFAST and "processes" not in settings:
        return await start_forked(command, environment)
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
