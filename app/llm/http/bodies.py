"""Reads the body of a streamed response."""

from collections.abc import AsyncGenerator

import httpcore2
import httpx2

from app.llm.http.asyncio_backend import Connection


async def pieces_of(response: httpx2.Response, idle_timeout: float) -> AsyncGenerator[bytes]:
    """The body in pieces, as they arrive.

    The contents of HTTP chunks are taken from the connection: the layers of the HTTP stack cost more than reading
    them. The stack reads the end of the response, so that it may reuse the connection, and all other bodies.
    """
    connection = response.extensions.get("network_stream")
    if isinstance(connection, Connection) and "content-encoding" not in response.headers:
        try:
            while contents := await connection.read_chunks(idle_timeout):
                yield contents
        except httpcore2.ReadTimeout:
            raise httpx2.ReadTimeout("nothing came in time") from None
    async for piece in response.aiter_bytes():
        yield piece
