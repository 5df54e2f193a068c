"""A server before the server: it adds many events to the stream of one run, and passes everything else on.

A model can't be made to write exactly 1,000 events a second, and a database would limit the speed. The browser sees the
address, the headers and the frames of the real server.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import aiohttp
from aiohttp import web

EVENTS_OF_STEP = 200
TICK_SECONDS = 0.01
_HOP = {"transfer-encoding", "connection", "content-encoding", "content-length"}


@dataclass(slots=True)
class ManyEvents:
    """First `steady` events at `per_second`, then others as fast as they are read, up to `most` in all."""

    server: str
    run_id: str
    after: int
    per_second: int
    steady: int
    most: int
    base: str = ""
    sent_steady: asyncio.Event | None = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        wants_stream = "text/event-stream" in request.headers.get("accept", "")
        if wants_stream and request.path == f"/v1/runs/{self.run_id}/events":
            answered = self._stream(request)
        else:
            answered = self._pass_on(request)
        try:
            return await answered
        except ConnectionResetError:
            return web.Response()  # the page waits for it no more

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        frames = self._frames(int(request.headers.get("last-event-id") or self.after))
        at_once = round(self.per_second * TICK_SECONDS)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for tick in range(self.steady // at_once):
            await response.write(b"".join(islice(frames, at_once)))
            await asyncio.sleep(max(0.0, began + (tick + 1) * TICK_SECONDS - loop.time()))
        assert self.sent_steady is not None
        self.sent_steady.set()
        while chunk := b"".join(islice(frames, EVENTS_OF_STEP)):
            await response.write(chunk)
            await asyncio.sleep(0)
        while True:
            await asyncio.sleep(0.5)
            await response.write(b": heartbeat\n\n")

    def _frames(self, after: int) -> Iterator[bytes]:
        for number, event in zip(
            range(self.after + 1, self.after + self.most + 1), events(), strict=False
        ):
            if number > after:
                yield b"id: %d\ndata: %s\n\n" % (
                    number,
                    json.dumps({"seq": number, **event}).encode(),
                )

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        async with (
            aiohttp.ClientSession(auto_decompress=False) as http,
            http.request(
                request.method,
                self.server + request.raw_path,
                headers=request.headers,
                data=await request.read(),
                allow_redirects=False,
            ) as answer,
        ):
            headers = {
                name: value for name, value in answer.headers.items() if name.lower() not in _HOP
            }
            if encoding := answer.headers.get("content-encoding"):
                headers["Content-Encoding"] = encoding
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response


def events() -> Iterator[dict[str, Any]]:
    """Steps without end. Each says words, and each word once in its message."""
    for step in count(1):
        words = [f"s{step}w{number} " for number in range(EVENTS_OF_STEP - 3)]
        yield {"event_type": "step_start", "step": step}
        for word in words:
            yield {"event_type": "text_delta", "step": step, "delta": word}
        message = {
            "id": f"message-{step}",
            "seq": 1_000_000 + step,
            "role": "assistant",
            "content": [{"type": "text", "text": "".join(words)}],
        }
        yield {"event_type": "message_done", "step": step, "message": message}
        yield {"event_type": "step_end", "step": step}


@asynccontextmanager
async def before(stream: ManyEvents) -> AsyncIterator[ManyEvents]:
    stream.sent_steady = asyncio.Event()
    runner = web.AppRunner(_application(stream), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stream.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield stream
    finally:
        await runner.cleanup()


def _application(stream: ManyEvents) -> web.Application:
    application = web.Application(client_max_size=10_000_000)
    application.router.add_route("*", "/{path:.*}", stream.answer)
    return application
