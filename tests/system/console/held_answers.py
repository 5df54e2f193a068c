"""A model provider whose answers stop after some words, until their reader leaves."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.support.listeners import listening

WORDS = tuple(f"word{number}" for number in range(1, 61))
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


@dataclass(slots=True)
class HeldAnswers:
    """Each answer has all words. The first ones stop after as many words as `stops` says, the others are whole."""

    stops: Sequence[int]
    port: int = 0
    answers: int = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        stop = self.stops[self.answers] if self.answers < len(self.stops) else None
        self.answers += 1
        writer.write(_HEAD + b"".join(_chunk(f"{word} ") for word in WORDS[:stop]))
        if stop is None:
            writer.write(_chunk("", "stop") + b"data: [DONE]\n\n")
        else:
            await reader.read()  # until the reader has left


@asynccontextmanager
async def held_answers(*stops: int) -> AsyncIterator[HeldAnswers]:
    provider = HeldAnswers(stops)
    async with listening(provider.answer) as provider.port:
        yield provider


def _chunk(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    body = {"id": "held", "object": "chat.completion.chunk", "created": 1, "model": "held"}
    return b"data: %b\n\n" % json.dumps({**body, "choices": [choice]}).encode()
