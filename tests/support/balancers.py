"""A load balancer as deployments have one: it asks each replica for its health, and carries connections
to those that are well."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

LOOKS_EVERY = 0.05


class Balancer:
    def __init__(self) -> None:
        self._well: dict[int, bool] = {}
        self._turn = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._changed = asyncio.Event()

    @property
    def base(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def well(self) -> set[int]:
        return {port for port, is_well in self._well.items() if is_well}

    def add(self, port: int) -> None:
        self._well[port] = False

    def remove(self, port: int) -> None:
        del self._well[port]

    async def uses(self, port: int) -> None:
        """Wait until it sends somebody there."""
        while port not in self.well:
            await self._next_change()

    async def avoids(self, port: int) -> None:
        """Wait until it sends nobody there any more."""
        while port in self.well:
            await self._next_change()

    async def look(self) -> None:
        """Ask everybody for their health, again and again, until cancelled."""
        never = asyncio.Event()
        async with httpx2.AsyncClient(timeout=2) as http:
            while True:
                for port in list(self._well):
                    is_well = await _is_well(http, port)
                    if port in self._well:
                        self._well[port] = is_well
                        self._changed.set()
                try:
                    async with asyncio.timeout(LOOKS_EVERY):
                        await never.wait()
                except TimeoutError:
                    continue

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)

    def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            from_there, to_there = await self._connect()
            try:
                async with asyncio.TaskGroup() as ways:
                    ways.create_task(_pass_on(reader, to_there))
                    ways.create_task(_pass_on(from_there, writer))
            finally:
                to_there.transport.abort()
        except* OSError:
            pass
        finally:
            writer.transport.abort()
            self._open.discard(writer)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        well = sorted(self.well)
        if not well:
            raise ConnectionRefusedError("no replica is well")
        self._turn += 1
        return await asyncio.open_connection("127.0.0.1", well[self._turn % len(well)])


@asynccontextmanager
async def balancing() -> AsyncIterator[Balancer]:
    balancer = Balancer()
    await balancer.open()
    looking = asyncio.get_running_loop().create_task(balancer.look())
    try:
        yield balancer
    finally:
        looking.cancel()
        await asyncio.wait({looking})
        balancer.close()


async def _is_well(http: httpx2.AsyncClient, port: int) -> bool:
    try:
        return (await http.get(f"http://127.0.0.1:{port}/health")).status_code == 200
    except httpx2.TransportError:
        return False


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What one side says, and that it has ended, to the other."""
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
