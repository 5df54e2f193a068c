"""Event streams as clients get them: ready bytes, heartbeats, and an end that means something.

A stream ends cleanly only when there is nothing more to come; when the server stops, the body is cut,
so that clients come back with their last id. A client that takes nothing is cut off by itself.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import structlog
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from app import telemetry
from app.events.follow import Follower
from app.events.frames import Frame

RETRY = b"retry: 2000\n\n"
HEARTBEAT = b": heartbeat\n\n"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    heartbeat: float
    send_timeout: float


class EventStream(EventSourceResponse):
    """A follower's frames on their way to one client; however that ends, the follower is let go."""

    def __init__(
        self,
        follower: Follower,
        options: StreamOptions,
        *,
        named: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            _chunks(follower, named),
            headers={"Cache-Control": "no-cache, no-transform", **(headers or {})},
            ping=0,
            send_timeout=options.send_timeout,
        )
        self._follower = follower

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            log.info("stream_cut", path=scope["path"], reason="the client takes nothing")
        finally:
            self._follower.close()


async def _chunks(follower: Follower, named: bool) -> AsyncIterator[bytes]:
    """Whatever has come together goes out as one chunk."""
    with telemetry.streams_open.track_inprogress():
        yield RETRY
        async with aclosing(follower.frames()) as heard:
            async for frames in heard:
                yield HEARTBEAT if frames is None else _bytes_of(frames, named)


def _bytes_of(frames: Sequence[Frame], named: bool) -> bytes:
    if not named:
        return b"".join([frame.data for frame in frames])
    return b"".join(
        [b"event: " + frame.event_type.encode() + b"\n" + frame.data for frame in frames]
    )
