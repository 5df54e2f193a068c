"""Responses about memories."""

import httpx2

from tests.support.routes import Route
from tests.surface.scenarios import answers
from tests.surface.servers import Servers

PUT = "PUT /v1/memories/{memory_key}"


async def put(servers: Servers, key: str, value: str = "green") -> httpx2.Response:
    return await servers.ann.http.put(f"/v1/memories/{key}", json={"value": value})


@answers("GET /v1/memories/{memory_key} 200", f"{PUT} 200", "DELETE /v1/memories/{memory_key} 204")
async def of_a_kept_memory(servers: Servers, route: Route) -> httpx2.Response:
    assert (await put(servers, "colour")).status_code == 200
    return await route.ask(servers.ann, {"memory_key": "colour"})


@answers(
    "GET /v1/memories/{memory_key} 404 memory_not_found",
    "DELETE /v1/memories/{memory_key} 404 memory_not_found",
)
async def of_an_unknown_memory(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, {"memory_key": "never_saved"})


@answers(f"{PUT} 413 memory_too_large")
async def of_a_long_text(servers: Servers, route: Route) -> httpx2.Response:
    return await put(servers, "essay", "word " * 1_000)


@answers(f"{PUT} 422 memory_has_secret")
async def of_a_password(servers: Servers, route: Route) -> httpx2.Response:
    return await put(servers, "password", "tr0ub4dor&3")


@answers(f"{PUT} 409 memory_full")
async def beyond_the_number(servers: Servers, route: Route) -> httpx2.Response:
    async with servers.extra_server(max_memories=1) as server, server.client("ann") as ann:
        await ann.http.delete("/v1/memories", params={"scope": "own"})
        assert (await ann.http.put("/v1/memories/one", json={"value": 1})).status_code == 200
        refused = await ann.http.put("/v1/memories/two", json={"value": 2})
        await ann.http.delete("/v1/memories", params={"scope": "own"})
        return refused
