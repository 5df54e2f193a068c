"""A load balancer: it polls the health of each replica, and forwards connections to healthy ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from tests.support.both_ways import forward_both_ways
from tests.support.listeners import Listener

POLL_INTERVAL_SECONDS = 0.05


class Balancer:
    def __init__(self) -> None:
        self._health: dict[int, bool] = {}
        self._turn = 0
        self._listener: Listener | None = None
        self._changed = asyncio.Event()

    @property
    def base(self) -> str:
        assert self._listener is not None
        return f"http://127.0.0.1:{self._listener.port}"

    @property
    def healthy(self) -> set[int]:
        return {port for port, is_healthy in self._health.items() if is_healthy}

    def add(self, port: int) -> None:
        self._health[port] = False

    def remove(self, port: int) -> None:
        del self._health[port]

    async def uses(self, port: int) -> None:
        """Wait until it sends connections to this port."""
        while port not in self.healthy:
            await self._next_change()

    async def avoids(self, port: int) -> None:
        """Wait until it sends no connections to this port."""
        while port in self.healthy:
            await self._next_change()

    async def poll_health(self) -> None:
        """Poll the health of all replicas until cancelled."""
        never = asyncio.Event()
        async with httpx2.AsyncClient(timeout=2) as http:
            while True:
                for port in list(self._health):
                    is_healthy = await _is_healthy(http, port)
                    if port in self._health:
                        self._health[port] = is_healthy
                        self._changed.set()
                try:
                    async with asyncio.timeout(POLL_INTERVAL_SECONDS):
                        await never.wait()
                except TimeoutError:
                    continue

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def open(self) -> None:
        self._listener = Listener(self._carry)

    async def close(self) -> None:
        assert self._listener is not None
        await self._listener.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await forward_both_ways(reader, writer, *await self._connect())

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        healthy = sorted(self.healthy)
        if not healthy:
            raise ConnectionRefusedError("no replica is healthy")
        self._turn += 1
        return await asyncio.open_connection("127.0.0.1", healthy[self._turn % len(healthy)])


@asynccontextmanager
async def balancing() -> AsyncIterator[Balancer]:
    balancer = Balancer()
    await balancer.open()
    polling = asyncio.get_running_loop().create_task(balancer.poll_health())
    try:
        yield balancer
    finally:
        polling.cancel()
        await asyncio.wait({polling})
        await balancer.close()


async def _is_healthy(http: httpx2.AsyncClient, port: int) -> bool:
    try:
        return (await http.get(f"http://127.0.0.1:{port}/health")).status_code == 200
    except httpx2.TransportError:
        return False
