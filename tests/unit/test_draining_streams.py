"""A draining server cuts open streams, and streams that begin while it drains."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.types import Message

from app.events.follow import FrameBatch
from app.http.sse import RECONNECT_MILLISECONDS, EventStream, StreamOptions

pytestmark = pytest.mark.anyio


class NoFrames:
    """A source without any frame."""

    is_ready = has_ended = is_closed = False

    async def frames(self) -> AsyncGenerator[FrameBatch]:
        await asyncio.Event().wait()
        yield None

    def close(self) -> None:
        self.is_closed = True


async def sent_of(stream: EventStream, *, until_silent: asyncio.Event) -> list[Message]:
    """The messages that the stream sent."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)
        if message.get("body") == RECONNECT_MILLISECONDS:
            until_silent.set()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    scope: dict[str, Any] = {"type": "http", "path": "/v1/runs/1/events"}
    async with asyncio.timeout(5):
        await stream(scope, receive, send)
    return sent


def was_cut(sent: list[Message]) -> bool:
    """Whether the response began with 200 and never ended."""
    return sent[0]["status"] == 200 and all(message["more_body"] for message in sent[1:])


async def test_an_open_stream_breaks_off() -> None:
    options = StreamOptions(heartbeat=60, send_timeout=60)
    source, open_now = NoFrames(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(sent_of(EventStream(source, options), until_silent=open_now))
        await open_now.wait()
        options.cut_streams()
    assert was_cut(sending.result())
    assert source.is_closed
    assert not options.open_streams


async def test_a_stream_that_begins_during_draining_is_cut_and_not_refused() -> None:
    """An EventSource reconnects after a cut, and stops after a refusal."""
    options = StreamOptions(heartbeat=60, send_timeout=60)
    options.cut_streams()
    source = NoFrames()
    assert was_cut(await sent_of(EventStream(source, options), until_silent=asyncio.Event()))
    assert source.is_closed
