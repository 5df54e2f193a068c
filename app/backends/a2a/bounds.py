"""Bounds on what an A2A agent sends: the protocol's library reads whole bodies and frames into memory."""

from collections.abc import AsyncIterator

import httpx

from app.backends.base import BackendError

MAX_BYTES = 16 * 1024 * 1024
"""Bytes of one response, or of one frame of an event stream."""
EVENT_STREAM = "text/event-stream"
_FRAME_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_MAX_FRAME_END_BYTES = 4


async def bound_response(response: httpx.Response) -> None:
    """A hook of the HTTP client, called before the body is read."""
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise BackendError(
            "remote_garbled", f"The remote agent answers with the encoding {encoding[:100]}."
        )
    assert isinstance(response.stream, httpx.AsyncByteStream)
    is_stream = EVENT_STREAM in response.headers.get("content-type", "")
    response.stream = BoundedStream(response.stream, in_frames=is_stream)


class BoundedStream(httpx.AsyncByteStream):
    """A body that ends with an error when it, or one of its frames, gets too large."""

    def __init__(self, stream: httpx.AsyncByteStream, *, in_frames: bool) -> None:
        self._stream = stream
        self._in_frames = in_frames
        self._size = 0
        self._last = b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._size += len(piece)
            if self._size > MAX_BYTES:
                what = "an event" if self._in_frames else "a response"
                raise BackendError(
                    "remote_garbled", f"The remote agent sends {what} of over {MAX_BYTES} bytes."
                )
            if self._in_frames:
                self._start_frame(piece)
            yield piece

    def _start_frame(self, piece: bytes) -> None:
        """Count from the last end of a frame, which two pieces may share."""
        data = self._last + piece
        ends = [data.rfind(each) + len(each) for each in _FRAME_ENDS if each in data]
        if ends:
            self._size = len(data) - max(ends)
        self._last = data[1 - _MAX_FRAME_END_BYTES :]

    async def aclose(self) -> None:
        await self._stream.aclose()
