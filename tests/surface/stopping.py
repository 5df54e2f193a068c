"""Refusals of a server that is stopping: of requests that came in time, and were whole, or done, too late."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.support.routes import BODIES, Route, routes_of
from tests.support.servers import Server
from tests.support.streams import Client
from tests.surface.everywhere import everywhere, nowhere
from tests.surface.scenarios import RETRY, answers
from tests.surface.stage import Stage, locked


@answers("POST /v1/runs 503 draining", f"{RETRY} 503 draining")
async def while_it_closes(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.cancelled(await stage.waiting())
    async with stage.one_more() as server, server.client("ann") as client:
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


@everywhere("draining")
async def while_it_waits(stage: Stage, route: Route) -> httpx2.Response:
    """One server is asked everything at once: it takes its time to give up."""
    if not stage.given_up:
        stage.given_up.update(await _all_given_up(stage))
    return stage.given_up[route]


async def _all_given_up(stage: Stage) -> dict[Route, httpx2.Response]:
    async with (
        stage.one_more(drain_delay=0.5) as server,
        server.client("ann") as client,
        locked(stage.database),
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
            route: tasks.create_task(route.ask(client, nowhere(route), extensions={"trace": trace}))
            for route in routes
        }
        await all_sent.wait()
        server.terminate()
    return {route: task.result() for route, task in asked.items()}
