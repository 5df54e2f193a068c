"""The shop of `tests/support/mcp/shop.py` as a server over HTTP, in a process of its own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.support.both_ways import forward_both_ways
from tests.support.conditions import eventually
from tests.support.listeners import listening
from tests.support.mcp.agents_files import KEY, SHOP
from tests.support.ports import free_port


@dataclass
class Link:
    """A port that leads to another one. A test can cut its open connections."""

    target: int
    port: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers |= {writer, there}
        try:
            await forward_both_ways(reader, writer, there_reader, there)
        finally:
            self._writers -= {writer, there}


@asynccontextmanager
async def linked(target: int) -> AsyncIterator[Link]:
    link = Link(target)
    async with listening(link.carry) as link.port:
        yield link


@dataclass
class HttpShop:
    port: int
    variables: dict[str, str]
    process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, str(SHOP), env={**os.environ, **self.variables}
        )
        await eventually(self._listens)

    async def kill(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.returncode is None
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True


@asynccontextmanager
async def http_shop(**variables: str) -> AsyncIterator[HttpShop]:
    port = free_port()
    shop = HttpShop(port, {"SHOP_PORT": str(port), "SHOP_KEY": KEY, **variables})
    await shop.start()
    try:
        yield shop
    finally:
        await shop.kill()
