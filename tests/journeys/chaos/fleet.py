"""The replicas: each has a place, and in it one process after the other."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from app.clock import sleep
from tests.journeys.chaos.roads import Road
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
    """One place. Its process may be gone; its road stays."""

    def __init__(
        self, name: str, database_url: str, agents: Path, program: Sequence[str | Path]
    ) -> None:
        self.name = name
        self.road = Road(lambda: self.port)
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
        return None if self._process is None else self._process.pid

    @property
    def is_up(self) -> bool:
        """It runs, and nobody is about to change that."""
        return self._process is not None and not self._changing.locked()

    async def start(self) -> None:
        """Until one runs: a database that is away is no reason to give up."""
        while self._process is None:
            stack = AsyncExitStack()
            try:
                self._process = await stack.enter_async_context(
                    serving(
                        self._database_url,
                        self._program,
                        agents=self._agents,
                        **_SETTINGS,
                    )
                )
            except (AssertionError, TimeoutError) as ended:
                self.log += f"{ended}\n"
                await stack.aclose()
                await sleep(0.2)
            else:
                self._stack = stack

    async def lost(self, down_for: float) -> None:
        """`kill -9`, and another one in its place after a while."""
        async with self._changing:
            if self._process is not None:
                self._process.kill()
                await self._bury()
            await sleep(down_for)
            await self.start()

    async def deployed(self, down_for: float) -> float:
        """SIGTERM, and another one in its place; how long the old one took to leave."""
        async with self._changing:
            began = asyncio.get_running_loop().time()
            if self._process is not None:
                self._process.terminate()
                await self._process.gone()
                await self._bury()
            took = asyncio.get_running_loop().time() - began
            await sleep(down_for)
            await self.start()
        return took

    async def frozen(self, seconds: float) -> None:
        """Stopped for so long that it counts as dead, and then goes on as if nothing had been."""
        async with self._changing:
            if self._process is None:
                return
            os.kill(self._process.pid, signal.SIGSTOP)
            try:
                await sleep(seconds)
            finally:
                os.kill(self._process.pid, signal.SIGCONT)

    async def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._bury()

    async def _bury(self) -> None:
        process, self._process = self._process, None
        await self._stack.aclose()
        if process is not None:
            self.log += process.log


@asynccontextmanager
async def fleet(
    database_url: str, agents: Path, count: int, program: Sequence[str | Path] = (HOLDFAST,)
) -> AsyncIterator[list[Replica]]:
    """So many replicas that serve and execute, each behind a road."""
    replicas = [Replica(f"r{n}", database_url, agents, program) for n in range(count)]
    async with AsyncExitStack() as stack:
        for replica in replicas:
            stack.push_async_callback(replica.close)
            await stack.enter_async_context(replica.road.opened())
        async with asyncio.TaskGroup() as starting:
            for replica in replicas:
                starting.create_task(replica.start())
        yield replicas
