"""Refusals of changes and retractions of pending messages."""

from typing import Any

import httpx2

from tests.support.routes import UNKNOWN, Route
from tests.support.streams import Client
from tests.surface.scenarios import answers
from tests.surface.servers import Servers

INPUT = "/v1/threads/{thread_id}/inputs/{input_id}"


async def change(
    servers: Servers, route: Route, run: dict[str, Any], input_id: str, revision: int = 1
) -> httpx2.Response:
    """Change or retract a message at the given revision."""
    body = {"message": {"role": "user", "content": "instead"}} if route.method == "PATCH" else None
    return await servers.ann.http.request(
        route.method,
        route.path.format(thread_id=run["thread_id"], input_id=input_id),
        json=body,
        headers={"If-Match": f'"{revision}"'},
    )


async def change_to_file(servers: Servers, file_id: str) -> httpx2.Response:
    """Change a pending message to one that refers to a file as an image."""
    image = {"type": "image", "source": {"type": "file", "file_id": file_id}}
    return await change_to(servers, servers.ann, image)


async def change_to(servers: Servers, client: Client, part: dict[str, Any]) -> httpx2.Response:
    """Change a pending message to one with this part, by this client."""
    run, input_id = await servers.steered()
    return await client.http.patch(
        INPUT.format(thread_id=run["thread_id"], input_id=input_id),
        json={"message": {"role": "user", "content": [part]}},
        headers={"If-Match": '"1"'},
    )


@answers(f"PATCH {INPUT} 404 file_not_found")
async def to_an_unknown_file(servers: Servers, route: Route) -> httpx2.Response:
    return await change_to_file(servers, UNKNOWN)


@answers(f"PATCH {INPUT} 422 media_type_mismatch")
async def to_a_text_as_an_image(servers: Servers, route: Route) -> httpx2.Response:
    file = await servers.ann.http.post(
        "/v1/files", content=b"hello", headers={"Content-Type": "text/plain"}
    )
    return await change_to_file(servers, file.json()["id"])


@answers(
    f"PATCH {INPUT} 409 already_consumed",
    f"DELETE {INPUT} 409 already_consumed",
)
async def after_it_was_read(servers: Servers, route: Route) -> httpx2.Response:
    run, input_id = await servers.steered()
    await servers.ann.decide(run, "approve")
    await servers.ann.settled(run["id"])
    return await change(servers, route, run, input_id)


@answers(f"PATCH {INPUT} 409 input_retracted")
async def after_its_run_was_cancelled(servers: Servers, route: Route) -> httpx2.Response:
    run, input_id = await servers.steered()
    await servers.cancelled(run)
    return await change(servers, route, run, input_id)


@answers(
    f"PATCH {INPUT} 412 revision_mismatch",
    f"DELETE {INPUT} 412 revision_mismatch",
)
async def after_it_was_changed(servers: Servers, route: Route) -> httpx2.Response:
    run, input_id = await servers.steered()
    return await change(servers, route, run, input_id, revision=7)
