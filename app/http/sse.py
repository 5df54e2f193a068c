"""Event streams as clients get them: ready bytes, heartbeats, and an end that means something.

A stream ends cleanly only when there is nothing more to come; when the server stops, the body is cut,
so that clients come back with their last id. A client that takes nothing is cut off by itself.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from app import telemetry
from app.domain.errors import Gone
from app.events.follow import FrameBatch
from app.events.sse_encoding import Frame

RECONNECT_MILLISECONDS = b"retry: 2000\n\n"
HEARTBEAT_COMMENT = b": heartbeat\n\n"

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class StreamOptions:
    heartbeat: float
    send_timeout: float
    open_streams: "set[EventStream]" = field(default_factory=set)
    is_cutting: bool = False

    def cut_streams(self) -> None:
        """The server stops: clients shall come back, here or elsewhere. So shall those who come now."""
        self.is_cutting = True
        for stream in list(self.open_streams):
            stream.cut()


class Source(Protocol):
    """Where a stream's frames come from: a thread, a run, or an inbox."""

    def frames(self) -> AsyncGenerator[FrameBatch]: ...

    def close(self) -> None:
        """Let go of what it holds, also when nobody ever read."""


class EventStream(EventSourceResponse):
    """A follower's frames on their way to one client; however that ends, the follower is let go.

    It sends in the request's own task instead of the four that the library would start: the frames that
    are there already go out before any other task has its turn, and a short run costs a third less.
    """

    def __init__(
        self,
        follower: Source,
        options: StreamOptions,
        *,
        named: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._chunks = _chunks(follower, named)
        super().__init__(
            self._chunks,
            headers={"Cache-Control": "no-cache, no-transform", **(headers or {})},
            send_timeout=options.send_timeout,
        )
        self._follower = follower
        self._options = options
        self._life = asyncio.timeout(None)

    def cut(self) -> None:
        """Leave off in the middle."""
        if not self._life.expired():
            self._life.reschedule(0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._options.open_streams.add(self)
        if self._options.is_cutting:
            # Begun all the same: an EventSource comes back after a break, and gives up at a refusal.
            self._life = asyncio.timeout(0)
        try:
            async with self._life, asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(self._watch(receive))
                await self._send_all(send, scope["path"])
                watching.cancel()
        except TimeoutError:
            return
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self._options.open_streams.discard(self)
            self._follower.close()

    async def _watch(self, receive: Receive) -> None:
        """Nothing is left to do once the client has gone."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.cut()

    async def _send_all(self, send: Send, path: str) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self._chunks) as chunks:
            try:
                async for chunk in chunks:
                    if not await self._is_taken(send, chunk):
                        log.info("stream_cut", path=path, reason="the client takes nothing")
                        return
            except Gone as gap:
                # The client comes back with its last id, and is told in a status.
                log.info("stream_cut", path=path, reason=gap.detail)
                return
        await send({"type": "http.response.body", "body": b""})

    async def _is_taken(self, send: Send, chunk: bytes) -> bool:
        try:
            async with asyncio.timeout(self.send_timeout):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError:
            return False
        return True


async def _chunks(follower: Source, named: bool) -> AsyncGenerator[bytes]:
    """Whatever has come together goes out as one chunk."""
    with telemetry.streams_open.track_inprogress():
        yield RECONNECT_MILLISECONDS
        async with aclosing(follower.frames()) as heard:
            async for frames in heard:
                yield HEARTBEAT_COMMENT if frames is None else _bytes_of(frames, named)


def _bytes_of(frames: Sequence[Frame], named: bool) -> bytes:
    if not named:
        return b"".join([frame.data for frame in frames])
    return b"".join(
        [b"event: " + frame.event_type.encode() + b"\n" + frame.data for frame in frames]
    )
