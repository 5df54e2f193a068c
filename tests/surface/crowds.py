"""Refusals of a server that is asked more at once than it has connections to the database for."""

import asyncio

import httpx2

from app.http.error_codes import WITHOUT_DATABASE
from tests.support.routes import Route, routes_of
from tests.surface.everywhere import everywhere, nowhere
from tests.surface.stage import Stage, locked

CONNECTIONS = 3
AT_ONCE = CONNECTIONS + 2
"""Of each operation: some of them may be those that wait with a connection in hand."""


@everywhere("overloaded")
async def in_a_crowd(stage: Stage, route: Route) -> httpx2.Response:
    """One server is asked everything at once."""
    if not stage.turned_away:
        stage.turned_away.update(await _all_turned_away(stage))
    return stage.turned_away[route]


async def _all_turned_away(stage: Stage) -> dict[Route, httpx2.Response]:
    found: dict[Route, httpx2.Response] = {}
    async with (
        stage.one_more(
            pool_timeout=0.3, pool_size=CONNECTIONS, hot_pool_size=CONNECTIONS
        ) as server,
        server.client("ann") as client,
        locked(stage.database),
        asyncio.TaskGroup() as tasks,
    ):
        routes = [one for one in await routes_of(client) if one.path not in WITHOUT_DATABASE]
        all_found = asyncio.Event()

        async def insist(route: Route) -> None:
            while not all_found.is_set():
                response = await route.ask(client, nowhere(route))
                if response.json()["code"] == "overloaded":
                    found[route] = response
                if len(found) == len(routes):
                    all_found.set()

        asking = [tasks.create_task(insist(route)) for route in routes * AT_ONCE]
        await all_found.wait()
        for one in asking:
            one.cancel()
    return found
