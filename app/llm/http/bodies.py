"""Reads the body of a streamed response."""

import httpcore2
import httpx2

from app.llm.http.asyncio_backend import Connection


class StreamedBody:
    """The body of a response, in the pieces in which it arrives.

    The contents of HTTP chunks are taken from the connection: the layers of the HTTP stack cost more than reading
    them. The stack reads the end of the response, so that it may reuse the connection, and all other bodies.
    """

    def __init__(self, response: httpx2.Response, idle_timeout: float) -> None:
        connection = response.extensions.get("network_stream")
        is_plain = isinstance(connection, Connection) and "content-encoding" not in response.headers
        self._connection: Connection | None = connection if is_plain else None
        """Set as long as chunks may be taken from it."""
        self._idle_timeout = idle_timeout
        self._rest = response.aiter_bytes()

    async def read(self) -> bytes:
        """The next piece; empty at the end."""
        if self._connection is not None:
            try:
                if contents := await self._connection.read_chunks(self._idle_timeout):
                    return contents
            except httpcore2.ReadTimeout:
                raise httpx2.ReadTimeout("nothing came in time") from None
            self._connection = None
        return await anext(self._rest, b"")

    async def aclose(self) -> None:
        await self._rest.aclose()
