"""SSE clients as applications use them: each reconnects until the stream ends."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from tests.support.readers import Received, httpx2_event_source, since
from tests.support.streams import EVENT_STREAM, TIMEOUT_SECONDS
from tests.system.programs import program

CLIENTS = Path(__file__).parent / "clients"


Reader: TypeAlias = Callable[[str, Received], Coroutine[Any, Any, Received]]
"""Reads a stream to its end into the given object, which a test may inspect meanwhile."""


async def eventsource(url: str, received: Received) -> Received:
    """npm's `eventsource`: a browser's EventSource, for node."""
    return await _in_node("eventsource.mjs", url, received)


async def eventsource_parser(url: str, received: Received) -> Received:
    """npm's `eventsource-parser`: the parser in most JavaScript clients."""
    return await _in_node("parser.mjs", url, received)


async def curl(url: str, received: Received) -> Received:
    """A loop around curl, which prints the bytes that arrive."""
    while True:
        headers = EVENT_STREAM | since(received)
        given = [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]
        process = await asyncio.create_subprocess_exec(
            program("curl"),
            *(
                "-sN",
                "--max-time",
                str(TIMEOUT_SECONDS),
                "-w",
                "%{stderr}%{http_code}",
                *given,
                url,
            ),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        shown, status = await process.communicate()
        if int(status) not in (0, 200):
            received.status = int(status)
            return received
        received.connections += 1
        for id, data in re.findall(r"^id: (\d+)\ndata: (.*)\n\n", shown.decode(), re.MULTILINE):
            received.take(id, data)


READERS: dict[str, Reader] = {
    "eventsource": eventsource,
    "eventsource-parser": eventsource_parser,
    "httpx2": httpx2_event_source,
    "curl": curl,
}


@asynccontextmanager
async def node(script: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """One of the scripts in `clients`, killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        program("node"),
        CLIENTS / script,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _in_node(script: str, url: str, received: Received) -> Received:
    async with node(script, url) as process:
        assert process.stdout is not None
        async for line in process.stdout:
            message = json.loads(line)
            if "status" in message:
                received.status, received.connections = message["status"], message["connections"]
            else:
                received.take(message["id"], message["data"])
        assert await process.wait() == 0
    return received
