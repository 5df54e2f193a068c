"""A server that answers each request with a prepared response, as a broken or busy remote does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.listeners import listening

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class PreparedResponse:
    """One answer."""

    body: bytes
    status: int = 200
    kind: str = "application/json"
    more: tuple[str, ...] = ()
    """More headers."""


def as_json(body: Any, status: int = 200) -> PreparedResponse:
    return PreparedResponse(json.dumps(body).encode(), status)


def as_events(*events: dict[str, Any]) -> PreparedResponse:
    """An event stream that ends after these events."""
    frames = [f"id: {at}\ndata: {json.dumps(each)}\n\n" for at, each in enumerate(events, 1)]
    return PreparedResponse("".join(frames).encode(), kind="text/event-stream")


@dataclass(slots=True)
class PreparedServer:
    """Sends the answers in order and repeats the last one; records its requests."""

    answers: list[PreparedResponse] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    base: str = ""

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT_SECONDS)).decode()
        method, path, _ = head.split(" ", 2)
        lines = [line.partition(": ") for line in head.split("\r\n")[1:] if line]
        headers = {name.lower(): value for name, _, value in lines}
        self.headers.append(headers)
        self.bodies.append(await reader.readexactly(int(headers.get("content-length", 0))))
        self.asked.append((method, path))
        ready = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        answer = [
            f"HTTP/1.1 {ready.status} Whatever",
            f"content-type: {ready.kind}",
            f"content-length: {len(ready.body)}",
            "connection: close",
            *ready.more,
        ]
        writer.write("\r\n".join([*answer, "\r\n"]).encode() + ready.body)


@asynccontextmanager
async def prepared_server(*answers: PreparedResponse) -> AsyncIterator[PreparedServer]:
    host = PreparedServer(list(answers))
    async with listening(host.take) as port:
        host.base = f"http://127.0.0.1:{port}"
        yield host
