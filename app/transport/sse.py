"""Event streams as clients get them: ready bytes, heartbeats, and an end that means something.

A stream ends cleanly only when there is nothing more to come; when the server stops, the body is cut,
so that clients come back with their last id. A client that takes nothing is cut off by itself.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from sse_starlette import EventSourceResponse

from app import telemetry
from app.domain.events import DELTA_EVENTS
from app.events.follow import Filter, Heard
from app.events.frames import Frame

RETRY = b"retry: 2000\n\n"
HEARTBEAT = b": heartbeat\n\n"


@dataclass(frozen=True, slots=True)
class StreamOptions:
    heartbeat: float
    send_timeout: float


def wanted(types: str | None, deltas: bool, named: bool) -> "FrameShape":
    """What of a stream a client asked for."""
    chosen = frozenset(types.split(",")) if types else None

    def passes(frame: Frame) -> bool:
        if not deltas and frame.event_type in DELTA_EVENTS:
            return False
        return chosen is None or frame.event_type in chosen

    return FrameShape(None if chosen is None and deltas else passes, named)


@dataclass(frozen=True, slots=True)
class FrameShape:
    passes: Filter | None = None
    named: bool = False

    def bytes_of(self, frames: "list[Frame] | tuple[Frame, ...]") -> bytes:
        if self.passes is not None:
            frames = [frame for frame in frames if self.passes(frame)]
        if not self.named:
            return b"".join([frame.data for frame in frames])
        return b"".join(
            [b"event: " + frame.event_type.encode() + b"\n" + frame.data for frame in frames]
        )


def stream(
    heard: AsyncIterator[Heard],
    shape: FrameShape,
    options: StreamOptions,
    headers: Mapping[str, str] | None = None,
) -> EventSourceResponse:
    """Send what is heard, as one chunk whatever has come together."""
    return EventSourceResponse(
        _chunks(heard, shape),
        headers={"Cache-Control": "no-cache, no-transform", **(headers or {})},
        ping=0,
        send_timeout=options.send_timeout,
    )


async def _chunks(heard: AsyncIterator[Heard], shape: FrameShape) -> AsyncIterator[bytes]:
    with telemetry.streams_open.track_inprogress():
        yield RETRY
        async for frames in heard:
            chunk = HEARTBEAT if frames is None else shape.bytes_of(list(frames))
            if chunk:
                yield chunk
