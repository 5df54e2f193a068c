"""Which messages a stream sends: each one is a write to the client's socket."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from app.events.follow import FrameBatch
from app.events.sse_encoding import HintFrame
from app.http.sse import RECONNECT_MILLISECONDS, EventStream, StreamOptions

pytestmark = pytest.mark.anyio

FRAMES = [HintFrame("one"), HintFrame("two")]


class TwoFrames:
    """A source that knows whether its first frame is there, and which frame is its last one."""

    def __init__(self, *, is_ready: bool, knows_end: bool) -> None:
        self.is_ready = is_ready
        self.has_ended = False
        self._knows_end = knows_end

    async def frames(self) -> AsyncGenerator[FrameBatch]:
        first, second = FRAMES
        yield [first]
        self.has_ended = self._knows_end
        yield [second]

    def close(self) -> None: ...


async def bodies(source: TwoFrames) -> list[tuple[bytes, bool]]:
    """The bodies of the messages, and whether more follow."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    stream = EventStream(source, StreamOptions(heartbeat=60, send_timeout=60))
    await stream({"type": "http", "path": "/v1/runs"}, receive, send)
    start, *parts = sent
    assert start["type"] == "http.response.start"
    return [(part["body"], part.get("more_body", False)) for part in parts]


@pytest.mark.parametrize("is_ready", [True, False])
async def test_the_time_to_reconnect_is_sent_with_frames_that_are_there_already(
    is_ready: bool,
) -> None:
    first, second = (frame.whole for frame in FRAMES)
    sent = [body for body, _ in await bodies(TwoFrames(is_ready=is_ready, knows_end=True))]
    expected = [RECONNECT_MILLISECONDS + first] if is_ready else [RECONNECT_MILLISECONDS, first]
    assert sent == [*expected, second]


async def test_the_end_is_sent_with_the_last_frames() -> None:
    *before, last = await bodies(TwoFrames(is_ready=True, knows_end=True))
    assert all(more for _, more in before)
    assert last == (FRAMES[1].whole, False)


async def test_the_end_is_sent_alone_if_the_source_learns_of_it_later() -> None:
    *before, last = await bodies(TwoFrames(is_ready=True, knows_end=False))
    assert all(more for _, more in before)
    assert last == (b"", False)
