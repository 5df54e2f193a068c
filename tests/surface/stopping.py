"""Refusals of a stopping server, for requests that arrived before the stop and were complete after it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.support.routes import BODIES, Route, ids_of, routes_of
from tests.support.servers import Server
from tests.support.streams import Client
from tests.surface.common_refusals import common_refusal, unknown_ids
from tests.surface.scenarios import RETRY, answers
from tests.surface.servers import Servers, locked


@answers("POST /v1/runs 503 draining", f"{RETRY} 503 draining")
async def while_it_closes(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.cancelled(await servers.waiting())
    async with servers.extra_server() as server, server.client("ann") as client:
        return await client.http.request(
            route.method,
            route.path.format(**ids_of(run)),
            content=_once_it_closes(
                servers, server, client, BODIES.get((route.method, route.path))
            ),
            headers={"Content-Type": "application/json"},
        )


async def _once_it_closes(
    servers: Servers, server: Server, client: Client, body: Any
) -> AsyncIterator[bytes]:
    """Yields the body after the server has cut its streams; the head was sent before."""
    run = await servers.waiting()
    async with client.events(f"/v1/runs/{run['id']}", follow=1) as stream:
        await stream.next()
        server.terminate()
        with pytest.raises(httpx2.RemoteProtocolError):
            await stream.rest()
    yield json.dumps(body or {}).encode()


@common_refusal("draining")
async def while_it_waits(servers: Servers, route: Route) -> httpx2.Response:
    """Send every request at once to one server, because a drain takes a while."""
    if not servers.draining_answers:
        servers.draining_answers.update(await _all_draining(servers))
    return servers.draining_answers[route]


async def _all_draining(servers: Servers) -> dict[Route, httpx2.Response]:
    async with (
        servers.extra_server(drain_delay=0.5) as server,
        server.client("root") as client,
        locked(servers.database),
        asyncio.TaskGroup() as tasks,
    ):
        routes = await routes_of(client)
        sent, all_sent = 0, asyncio.Event()

        async def trace(event: str, _: Any) -> None:
            nonlocal sent
            sent += event.endswith("send_request_body.complete")
            if sent == len(routes):
                all_sent.set()

        asked = {
            route: tasks.create_task(
                route.ask(client, unknown_ids(route), extensions={"trace": trace})
            )
            for route in routes
        }
        await all_sent.wait()
        server.terminate()
    return {route: task.result() for route, task in asked.items()}
