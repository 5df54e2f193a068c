"""Refusals of a server that gets more simultaneous requests than it has database connections."""

import asyncio

import httpx2

from app.http.error_codes import WITHOUT_DATABASE
from tests.support.routes import Route, routes_of
from tests.surface.common_refusals import common_refusal, unknown_ids
from tests.surface.servers import Servers, locked

CONNECTIONS = 3
CONCURRENT_REQUESTS = CONNECTIONS + 2
"""Requests per operation, because some of them hold a connection while they wait."""


@common_refusal("overloaded")
async def while_overloaded(servers: Servers, route: Route) -> httpx2.Response:
    """Send every request at once to one server, and return the refusal of this route."""
    if not servers.overloaded_answers:
        servers.overloaded_answers.update(await _all_overloaded(servers))
    return servers.overloaded_answers[route]


async def _all_overloaded(servers: Servers) -> dict[Route, httpx2.Response]:
    found: dict[Route, httpx2.Response] = {}
    async with (
        servers.extra_server(
            pool_timeout=0.3, pool_size=CONNECTIONS, hot_pool_size=CONNECTIONS
        ) as server,
        server.client("root") as client,
        locked(servers.database),
        asyncio.TaskGroup() as tasks,
    ):
        routes = [one for one in await routes_of(client) if one.path not in WITHOUT_DATABASE]
        all_found = asyncio.Event()

        async def ask_until_overloaded(route: Route) -> None:
            while not all_found.is_set():
                response = await route.ask(client, unknown_ids(route))
                if response.json()["code"] == "overloaded":
                    found[route] = response
                if len(found) == len(routes):
                    all_found.set()

        requests = [
            tasks.create_task(ask_until_overloaded(route)) for route in routes * CONCURRENT_REQUESTS
        ]
        await all_found.wait()
        for one in requests:
            one.cancel()
    return found
