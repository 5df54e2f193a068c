"""A model provider that plays recorded answers back, and keeps the bytes of the requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.listeners import listening

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer with an error."""

    status: int
    body: dict[str, Any]


@dataclass(slots=True)
class RecordedProvider:
    """Each path has its answers. Its last one is repeated."""

    port: int = 0
    answers: dict[str, list[bytes | Refusal]] = field(default_factory=dict)
    bodies: dict[str, list[bytes]] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def plays(self, prefix: str, *answers: bytes | Refusal) -> str:
        """Answer requests below this path in turn. Returns its address."""
        self.answers[prefix], self.bodies[prefix] = [*answers], []
        return f"{self.origin}/{prefix}"

    def requests(self, prefix: str) -> Sequence[Any]:
        return [json.loads(body) for body in self.bodies[prefix]]

    def answer_to(self, path: str, body: bytes) -> bytes:
        prefix = path.split("/")[1]
        self.bodies[prefix].append(body)
        waiting = self.answers[prefix]
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        status, type_ = 200, "text/event-stream"
        if isinstance(answer, Refusal):
            status, type_ = answer.status, "application/json"
            answer = json.dumps(answer.body).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {type_}\r\nconnection: close\r\n\r\n"
        return head.encode() + answer


@asynccontextmanager
async def recorded_provider() -> AsyncIterator[RecordedProvider]:
    provider = RecordedProvider()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT_SECONDS)).decode()
        lines = head.lower().split("\r\n")
        [length] = [int(line[15:]) for line in lines if line.startswith("content-length:")]
        body = await asyncio.wait_for(reader.readexactly(length), TIMEOUT_SECONDS)
        writer.write(provider.answer_to(head.split(" ")[1], body))

    async with listening(serve) as provider.port:
        yield provider
