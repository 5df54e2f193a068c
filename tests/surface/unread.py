"""Refusals of changes to messages that wait: changed and retracted."""

from typing import Any

import httpx2

from tests.support.routes import Route
from tests.surface.scenarios import answers
from tests.surface.stage import Stage

INPUT = "/v1/threads/{thread_id}/inputs/{input_id}"


async def change(
    stage: Stage, route: Route, run: dict[str, Any], input_id: str, revision: int = 1
) -> httpx2.Response:
    """Change or retract a message at the given revision."""
    body = {"message": {"role": "user", "content": "instead"}} if route.method == "PATCH" else None
    return await stage.ann.http.request(
        route.method,
        route.path.format(thread_id=run["thread_id"], input_id=input_id),
        json=body,
        headers={"If-Match": f'"{revision}"'},
    )


@answers(
    f"PATCH {INPUT} 409 already_consumed",
    f"DELETE {INPUT} 409 already_consumed",
)
async def after_it_was_read(stage: Stage, route: Route) -> httpx2.Response:
    run, input_id = await stage.steered()
    await stage.ann.decide(run, "approve")
    await stage.ann.settled(run["run_id"])
    return await change(stage, route, run, input_id)


@answers(f"PATCH {INPUT} 409 input_retracted")
async def after_nobody_read_it(stage: Stage, route: Route) -> httpx2.Response:
    run, input_id = await stage.steered()
    await stage.cancelled(run)
    return await change(stage, route, run, input_id)


@answers(
    f"PATCH {INPUT} 412 revision_mismatch",
    f"DELETE {INPUT} 412 revision_mismatch",
)
async def after_it_was_changed(stage: Stage, route: Route) -> httpx2.Response:
    run, input_id = await stage.steered()
    return await change(stage, route, run, input_id, revision=7)
