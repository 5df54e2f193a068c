"""A server that answers each request with whatever the test has laid ready, as a broken or busy remote does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Ready:
    """One answer."""

    body: bytes
    status: int = 200
    kind: str = "application/json"


def as_json(body: Any, status: int = 200) -> Ready:
    return Ready(json.dumps(body).encode(), status)


def as_events(*events: dict[str, Any]) -> Ready:
    """A stream that ends behind them."""
    frames = [f"id: {at}\ndata: {json.dumps(each)}\n\n" for at, each in enumerate(events, 1)]
    return Ready("".join(frames).encode(), kind="text/event-stream")


@dataclass(slots=True)
class RoughHost:
    """Gives the answers in their order, the last one again and again; keeps what it was asked."""

    answers: list[Ready] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    base: str = ""

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)).decode()
        method, path, _ = head.split(" ", 2)
        sizes = [
            line.split(":")[1] for line in head.lower().split("\r\n") if "content-length" in line
        ]
        self.bodies.append(await reader.readexactly(int(sizes[0]) if sizes else 0))
        self.asked.append((method, path))
        ready = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        lines = [
            f"HTTP/1.1 {ready.status} Whatever",
            f"content-type: {ready.kind}",
            f"content-length: {len(ready.body)}",
            "connection: close",
        ]
        try:
            writer.write("\r\n".join([*lines, "\r\n"]).encode() + ready.body)
            await writer.drain()
        except ConnectionError:
            """The client has heard enough."""
        finally:
            writer.close()


@asynccontextmanager
async def rough_host(*answers: Ready) -> AsyncIterator[RoughHost]:
    host = RoughHost(list(answers))
    async with await asyncio.start_server(host.take, "127.0.0.1", 0) as server:
        host.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield host
