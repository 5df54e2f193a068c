"""Refusals of a server that is stopping: of requests that came in time, and were whole too late."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.support.routes import BODIES, Route
from tests.support.servers import Server
from tests.support.streams import Client
from tests.surface.scenarios import RETRY, answers
from tests.surface.stage import Stage


@answers("POST /v1/runs 503 draining", f"{RETRY} 503 draining")
async def while_it_closes(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.cancelled(await stage.waiting())
    async with stage.leaving() as server, server.client("ann") as client:
        return await client.http.request(
            route.method,
            route.path.format(**run),
            content=_once_it_closes(stage, server, client, BODIES.get((route.method, route.path))),
            headers={"Content-Type": "application/json"},
        )


async def _once_it_closes(
    stage: Stage, server: Server, client: Client, body: Any
) -> AsyncIterator[bytes]:
    """The body of a request whose head was sent before: a server that closes cuts its streams."""
    run = await stage.waiting()
    async with client.events(f"/v1/runs/{run['run_id']}", follow=1) as stream:
        await stream.next()
        server.terminate()
        with pytest.raises(httpx2.RemoteProtocolError):
            await stream.rest()
    yield json.dumps(body or {}).encode()
