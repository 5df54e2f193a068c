"""SSE responses: frames, heartbeats and the end of a stream.

A stream ends cleanly only after its last event. When the server stops, the body is cut off, so that clients
reconnect with their last id. A stream whose client reads nothing is cut off too.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol, Self

import structlog
from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from app import telemetry
from app.domain.errors import Gone
from app.events.follow import FrameBatch
from app.events.sse_encoding import Frame

RECONNECT_MILLISECONDS = b"retry: 2000\n\n"
HEARTBEAT_COMMENT = b": heartbeat\n\n"
OWN_TASK_AFTER_SECONDS = 1.0
"""Short streams don't pay for a task, and their first frames don't wait for one."""

log = structlog.get_logger(__name__)


def is_event_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether these are the headers of an SSE response."""
    return any(
        name == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in headers
    )


@dataclass(slots=True)
class StreamOptions:
    heartbeat: float
    send_timeout: float
    open_streams: "set[EventStream]" = field(default_factory=set)
    is_cutting: bool = False

    def cut_streams(self) -> None:
        """Cut all open streams, and those opened from now on. Clients reconnect, here or elsewhere."""
        self.is_cutting = True
        for stream in list(self.open_streams):
            stream.cut()


class Source(Protocol):
    """The source of a stream's frames: a thread, a run or the ticket feed."""

    @property
    def is_ready(self) -> bool:
        """Whether `frames` yields its first frames without waiting."""

    @property
    def has_ended(self) -> bool:
        """Whether the frames that were yielded last are the stream's last ones."""

    def frames(self) -> AsyncGenerator[FrameBatch]: ...

    def close(self) -> None:
        """Release its resources, also if `frames` was never called."""


class EventStream(EventSourceResponse):
    """Sends a follower's frames to one client, and closes the follower in the end.

    It sends in the request's task instead of the four tasks that the library starts. Frames that are
    available go out before other tasks run, and a short run costs a third less CPU. A stream that stays
    open gets a task of its own, because resuming the request's task passes through all middleware.
    """

    def __init__(
        self,
        follower: Source,
        options: StreamOptions,
        *,
        named: bool = False,
        of_one_run: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._chunks = _chunks(follower, named, of_one_run)
        super().__init__(
            self._chunks,
            headers={"Cache-Control": "no-cache, no-transform", **(headers or {})},
            send_timeout=options.send_timeout,
        )
        self._follower = follower
        self._options = options
        self._timeout = asyncio.timeout(None)
        self._path = ""

    def cut(self) -> None:
        """Cut the stream off without a clean end."""
        if not self._timeout.expired():
            self._timeout.reschedule(0)

    def _cut_unread(self) -> None:
        log.info("stream_cut", path=self._path, reason="the client reads nothing")
        self.cut()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._path = scope["path"]
        self._options.open_streams.add(self)
        if self._options.is_cutting:
            # An EventSource reconnects after a cut stream, and gives up after an error status.
            self._timeout = asyncio.timeout(0)
        try:
            async with self._timeout, asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(self._watch(receive))
                await self._send_all(send, tasks)
                watch.cancel()
        except TimeoutError:
            return
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self._options.open_streams.discard(self)
            self._follower.close()

    async def _watch(self, receive: Receive) -> None:
        """Cut the stream when the client disconnects."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.cut()

    async def _send_all(self, send: Send, tasks: asyncio.TaskGroup) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        with StalledSends(self._options.send_timeout, self._cut_unread) as sends:
            async with aclosing(self._chunks):
                if not await self._send_until(_now() + OWN_TASK_AFTER_SECONDS, send, sends):
                    await tasks.create_task(self._send_until(math.inf, send, sends))

    async def _send_until(self, time: float, send: Send, sends: "StalledSends") -> bool:
        """Send the chunks until then. Returns whether the stream has ended."""
        try:
            return await self._send_chunks_until(time, send, sends)
        except Gone as gap:
            # The client reconnects with its last id and gets the status 410.
            log.info("stream_cut", path=self._path, reason=gap.detail)
            return True

    async def _send_chunks_until(self, time: float, send: Send, sends: "StalledSends") -> bool:
        async for chunk in self._chunks:
            more = not self._follower.has_ended
            sends.begin()
            await send({"type": "http.response.body", "body": chunk, "more_body": more})
            sends.end()
            if not more:
                return True
            if _now() >= time:
                return False
        await send({"type": "http.response.body", "body": b""})
        return True


class StalledSends:
    """A block of sends. `stalled` is called when one of them has waited for `seconds`.

    One timer serves all of them. It is moved only when it fires.
    """

    def __init__(self, seconds: float, stalled: Callable[[], None]) -> None:
        self._seconds = seconds
        self._stalled = stalled
        self._loop = asyncio.get_running_loop()
        self._began_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """A send begins."""
        self._began_at = self._loop.time()

    def end(self) -> None:
        self._began_at = None

    def __enter__(self) -> Self:
        self._timer = self._loop.call_later(self._seconds, self._check)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        now = self._loop.time()
        deadline = (now if self._began_at is None else self._began_at) + self._seconds
        if deadline <= now:
            self._timer = None
            self._stalled()
        else:
            self._timer = self._loop.call_at(deadline, self._check)


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _chunks(follower: Source, named: bool, of_one_run: bool) -> AsyncGenerator[bytes]:
    """One chunk per batch of frames, and a comment for each heartbeat.

    On the stream of one run only the first frame has the whole envelope.
    """
    is_first = True
    with telemetry.streams_open.track_inprogress():
        prefix = RECONNECT_MILLISECONDS
        if not follower.is_ready:
            yield prefix
            prefix = b""
        async with aclosing(follower.frames()) as batches:
            async for frames in batches:
                if frames is None:
                    yield HEARTBEAT_COMMENT
                    continue
                chunk = prefix + _joined(frames, named, of_one_run, is_first)
                prefix, is_first = b"", False
                # While a slow client reads the chunk, only the chunk stays in memory.
                del frames
                yield chunk


def _joined(frames: Sequence[Frame], named: bool, of_one_run: bool, is_first: bool) -> bytes:
    encoded = [frame.short if of_one_run else frame.whole for frame in frames]
    if is_first:
        encoded[0] = frames[0].whole
    return b"".join(_named(frames, encoded) if named else encoded)


def _named(frames: Sequence[Frame], encoded: Sequence[bytes]) -> list[bytes]:
    return [
        b"event: %s\n%s" % (frame.event_type.encode(), data)
        for frame, data in zip(frames, encoded, strict=True)
    ]
