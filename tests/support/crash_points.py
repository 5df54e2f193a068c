"""Requests whose server is killed at a chosen point, while another server of the same database lives on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2

from tests.support.forwarders import Forwarder, forwarding
from tests.support.servers import Server, serving
from tests.support.streams import TIMEOUT_SECONDS, Client

FAST_TAKEOVER = {"heartbeat_timeout": 1.0}


@asynccontextmanager
async def server_to_kill(
    database_url: str, agents: Path, other: Server, *, role: Literal["all", "api"]
) -> AsyncIterator[tuple[Forwarder, Server]]:
    """A server with the forwarder to its database.

    With the role `api`, the other server is frozen until the end of the block, so that no worker executes what
    this one accepts.
    """
    async with (
        forwarding(database_url) as forwarder,
        serving(forwarder.url, agents=agents, role=role, **FAST_TAKEOVER) as here,
    ):
        if role == "api":
            other.freeze()
        try:
            yield forwarder, here
        finally:
            other.thaw()


async def send_and_kill(
    server: Server,
    path: str,
    body: dict[str, Any],
    *,
    reached: Callable[[], Awaitable[object]] | None,
    is_answered: bool,
) -> int | None:
    """Post the body, and kill the server once the point is reached and, if it `is_answered`, the answer is here.

    Returns the received status; None if the server died before it answered.
    """
    async with server.client() as client, asyncio.TaskGroup() as group:
        answer = group.create_task(_status_of(client, path, body))
        if reached is not None:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await reached()
        if is_answered:
            await answer
        server.kill()
        await server.gone()
    return answer.result()


async def _status_of(client: Client, path: str, body: dict[str, Any]) -> int | None:
    try:
        return (await client.http.post(path, json=body)).status_code
    except httpx2.TransportError:
        return None
