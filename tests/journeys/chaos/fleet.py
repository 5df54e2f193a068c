"""The replicas: each runs one process after the other behind its own proxy, the first one two at a time."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from app.clock import sleep
from tests.journeys.chaos.proxies import FaultyProxy
from tests.support.commands import HOLDFAST
from tests.support.servers import Server, serving

HEARTBEAT_TIMEOUT = 1.5
_SETTINGS = {
    "heartbeat_timeout": HEARTBEAT_TIMEOUT,
    "stream_send_timeout": 2,
    "handover_grace": 1,
    "pool_size": 6,
    "hot_pool_size": 6,
    # The fake model asks for pauses of 3 s. A breaker stays open for longer than a run may wait here.
    "rate_limit_suspend_after": 1,
    "rate_limit_max_wait": 15,
}


class Replica:
    """One replica. Its process may be down; its proxy stays."""

    def __init__(
        self,
        name: str,
        database_url: str,
        agents: Path,
        program: Sequence[str | Path],
        processes: int,
    ) -> None:
        self.name = name
        self._processes = processes
        self.proxy = FaultyProxy(lambda: self.port)
        self._database_url = database_url
        self._agents = agents
        self._program = program
        self._process: Server | None = None
        self._stack = AsyncExitStack()
        self._changing = asyncio.Lock()
        self.log = ""

    @property
    def base(self) -> str | None:
        return None if self._process is None else self._process.base

    @property
    def port(self) -> int | None:
        return None if self.base is None else urlsplit(self.base).port

    @property
    def pid(self) -> int | None:
        """The process that a fault hits. With several behind one socket it is the oldest of them."""
        if self._process is None or self._processes == 1:
            return None if self._process is None else self._process.pid
        try:
            serving = psutil.Process(self._process.pid).children()
            return min(serving, key=psutil.Process.create_time).pid if serving else None
        except psutil.NoSuchProcess:
            # It is being deployed, and has just ended.
            return None

    @property
    def is_up(self) -> bool:
        """It runs, and no fault is being applied to it."""
        return self._process is not None and not self._changing.locked()

    async def start(self) -> None:
        """Start a process; retry until one runs, because the database may be down."""
        while self._process is None:
            stack = AsyncExitStack()
            try:
                self._process = await stack.enter_async_context(
                    serving(
                        self._database_url,
                        self._program,
                        agents=self._agents,
                        processes=self._processes,
                        **_SETTINGS,
                    )
                )
            except (AssertionError, TimeoutError) as ended:
                self.log += f"{ended}\n"
                await stack.aclose()
                await sleep(0.2)
            else:
                self._stack = stack

    async def kill_and_restart(self, down_for: float) -> None:
        """`kill -9`, then start another process after `down_for` seconds.

        One of several processes is replaced by their supervisor.
        """
        async with self._changing:
            if self._processes > 1:
                if (pid := self.pid) is not None:
                    os.kill(pid, signal.SIGKILL)
                return
            if self._process is not None:
                self._process.kill()
                await self._discard_process()
            await sleep(down_for)
            await self.start()

    async def redeploy(self, down_for: float) -> float:
        """SIGTERM, then start another process; returns how long the old one took to exit."""
        async with self._changing:
            began = asyncio.get_running_loop().time()
            if self._process is not None:
                self._process.terminate()
                await self._process.gone()
                await self._discard_process()
            took = asyncio.get_running_loop().time() - began
            await sleep(down_for)
            await self.start()
        return took

    async def freeze(self, seconds: float) -> None:
        """Stop the process until its heartbeat times out, then continue it."""
        async with self._changing:
            if (pid := self.pid) is None:
                return
            os.kill(pid, signal.SIGSTOP)
            try:
                await sleep(seconds)
            finally:
                os.kill(pid, signal.SIGCONT)

    async def close(self) -> None:
        if self._process is not None:
            if self._process.process.returncode is None:
                self._process.kill()
            await self._discard_process()

    async def _discard_process(self) -> None:
        process, self._process = self._process, None
        await self._stack.aclose()
        if process is not None:
            self.log += process.log


@asynccontextmanager
async def fleet(
    database_url: str, agents: Path, count: int, program: Sequence[str | Path] = (HOLDFAST,)
) -> AsyncIterator[list[Replica]]:
    """`count` replicas that serve and execute, each behind a proxy."""
    replicas = [
        Replica(f"r{n}", database_url, agents, program, 2 if n == 0 else 1) for n in range(count)
    ]
    async with AsyncExitStack() as stack:
        for replica in replicas:
            stack.push_async_callback(replica.close)
            await stack.enter_async_context(replica.proxy.opened())
        async with asyncio.TaskGroup() as starting:
            for replica in replicas:
                starting.create_task(replica.start())
        yield replicas
