"""Requests of our HTTP client for models, and the bodies of its responses."""

import asyncio

import httpx2

from app.llm.http.client import StreamingClient
from app.llm.http.connection_pool import ModelConnections
from app.llm.http.requests import PostRequest, TimeLimits
from app.llm.http.responses import HttpResponse
from tests.support.controlled_server import TIMEOUT_SECONDS, ControlledServer, ServedConnection

PATIENT = TimeLimits(TIMEOUT_SECONDS, TIMEOUT_SECONDS, TIMEOUT_SECONDS)


def request_to(url: str, **headers: str) -> PostRequest:
    return PostRequest.to(httpx2.URL(url), httpx2.Headers(headers))


def address_of(host: ControlledServer) -> str:
    return f"http://127.0.0.1:{host.port}/"


async def asked(
    client: StreamingClient | ModelConnections,
    url: str,
    body: bytes = b"",
    limits: TimeLimits = PATIENT,
) -> HttpResponse:
    """The open response to a request."""
    return await client.send(request_to(url), body, limits)


async def begun(
    client: StreamingClient | ModelConnections,
    url: str,
    host: ControlledServer,
    sent: bytes,
    body: bytes = b"",
    limits: TimeLimits = PATIENT,
) -> tuple[HttpResponse, ServedConnection]:
    """An open response on a new connection, of which the server has sent this."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(asked(client, url, body, limits))
        served = await host.connection()
        await served.reader.readuntil(b"\r\n\r\n")
        served.writer.write(sent)
        return await asking, served


async def contents_of(response: HttpResponse) -> bytes:
    """The whole body of a response, which is then closed."""
    try:
        contents = b""
        while piece := await response.read():
            contents += piece
        return contents
    finally:
        await response.aclose()


async def answered(
    client: StreamingClient | ModelConnections,
    url: str,
    body: bytes = b"",
    limits: TimeLimits = PATIENT,
) -> bytes:
    """The body of the response to a request."""
    return await contents_of(await asked(client, url, body, limits))
