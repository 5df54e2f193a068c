"""A NATS server in its own process; it keeps its port over kill and restart."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

TIMEOUT_SECONDS = 60.0
_PROGRAM = Path(sys.executable).with_name("nats-server")
_READY = b"Server is ready"


class NatsServer:
    def __init__(self) -> None:
        self._port = _free_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self._process = await asyncio.create_subprocess_exec(
            _PROGRAM,
            *("-a", "127.0.0.1", "-p", str(self._port)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self._process.stderr is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for line in self._process.stderr:
                if _READY in line:
                    return
        raise AssertionError("nats-server has ended")

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.communicate()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@asynccontextmanager
async def nats_server() -> AsyncIterator[NatsServer]:
    server = NatsServer()
    await server.start()
    try:
        yield server
    finally:
        await server.kill()
