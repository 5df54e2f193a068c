"""Readers of one event stream, as applications have them: each comes back by itself until nothing is left."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import httpx2

from tests.support.streams import EVENT_STREAM, PATIENCE, Event
from tests.system.programs import program

_CLIENTS = Path(__file__).parent / "clients"


@dataclass(slots=True)
class Heard:
    """What a reader was given, and the status that sent it home."""

    events: list[Event] = field(default_factory=list)
    connections: int = 0
    status: int = 0

    def take(self, id: str, data: str) -> None:
        event = json.loads(data)
        assert id == str(event["seq"])
        self.events.append(event)


Reader: TypeAlias = Callable[[str, Heard], Coroutine[Any, Any, Heard]]
"""Reads a stream to its end into what it was given; others may look at that meanwhile."""


async def eventsource(url: str, heard: Heard) -> Heard:
    """npm's `eventsource`: a browser's EventSource, for node."""
    return await _in_node("eventsource.mjs", url, heard)


async def eventsource_parser(url: str, heard: Heard) -> Heard:
    """npm's `eventsource-parser`: what most JavaScript clients of such services are made of."""
    return await _in_node("parser.mjs", url, heard)


async def httpx2_event_source(url: str, heard: Heard) -> Heard:
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        while True:
            headers = EVENT_STREAM | (_last_id(heard))
            try:
                async with http.stream("GET", url, headers=headers) as response:
                    if response.status_code != 200:
                        heard.status = response.status_code
                        return heard
                    heard.connections += 1
                    async for sse in httpx2.EventSource(response):
                        if sse.data:
                            heard.take(sse.id, sse.data)
            except httpx2.TransportError:
                continue


async def curl(url: str, heard: Heard) -> Heard:
    """A script around curl, which shows what arrives and nothing more."""
    while True:
        headers = EVENT_STREAM | _last_id(heard)
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


def _last_id(heard: Heard) -> dict[str, str]:
    return {"Last-Event-ID": str(heard.events[-1]["seq"])} if heard.events else {}
