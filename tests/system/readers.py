"""Readers of one event stream, as applications have them: each comes back by itself until nothing is left."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from tests.support.readers import Heard, httpx2_event_source, since
from tests.support.streams import EVENT_STREAM, PATIENCE
from tests.system.programs import program

_CLIENTS = Path(__file__).parent / "clients"


Reader: TypeAlias = Callable[[str, Heard], Coroutine[Any, Any, Heard]]
"""Reads a stream to its end into what it was given; others may look at that meanwhile."""


async def eventsource(url: str, heard: Heard) -> Heard:
    """npm's `eventsource`: a browser's EventSource, for node."""
    return await _in_node("eventsource.mjs", url, heard)


async def eventsource_parser(url: str, heard: Heard) -> Heard:
    """npm's `eventsource-parser`: what most JavaScript clients of such services are made of."""
    return await _in_node("parser.mjs", url, heard)


async def curl(url: str, heard: Heard) -> Heard:
    """A script around curl, which shows what arrives and nothing more."""
    while True:
        headers = EVENT_STREAM | since(heard)
        given = [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]
        process = await asyncio.create_subprocess_exec(
            program("curl"),
            *("-sN", "--max-time", str(PATIENCE), "-w", "%{stderr}%{http_code}", *given, url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        shown, status = await process.communicate()
        if int(status) not in (0, 200):
            heard.status = int(status)
            return heard
        heard.connections += 1
        for id, data in re.findall(r"^id: (\d+)\ndata: (.*)\n\n", shown.decode(), re.MULTILINE):
            heard.take(id, data)


READERS: dict[str, Reader] = {
    "eventsource": eventsource,
    "eventsource-parser": eventsource_parser,
    "httpx2": httpx2_event_source,
    "curl": curl,
}


@asynccontextmanager
async def node(script: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """One of the scripts in `clients`, for as long as somebody listens."""
    process = await asyncio.create_subprocess_exec(
        program("node"),
        _CLIENTS / script,
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


async def _in_node(script: str, url: str, heard: Heard) -> Heard:
    async with node(script, url) as process:
        assert process.stdout is not None
        async for line in process.stdout:
            said = json.loads(line)
            if "status" in said:
                heard.status, heard.connections = said["status"], said["connections"]
            else:
                heard.take(said["id"], said["data"])
        assert await process.wait() == 0
    return heard
