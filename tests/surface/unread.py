"""Refusals of changes to messages that wait: rewritten, taken back, put in another order."""

from typing import Any

import httpx2

from tests.support.routes import Route
from tests.surface.scenarios import answers, post
from tests.surface.stage import Stage

INPUT = "/v1/threads/{thread_id}/inputs/{input_id}"
REORDER = "POST /v1/threads/{thread_id}/inputs:reorder"


async def change(
    stage: Stage, route: Route, run: dict[str, Any], input_id: str, revision: int = 1
) -> httpx2.Response:
    """One message as it was seen, in the way that the operation has for it."""
    bodies: dict[str, Any] = {
        "PATCH": {"message": {"role": "user", "content": "instead"}},
        "POST": {"inputs": [{"id": input_id, "revision": revision}]},
    }
    return await stage.ann.http.request(
        route.method,
        route.path.format(thread_id=run["thread_id"], input_id=input_id),
        json=bodies.get(route.method),
        headers={"If-Match": f'"{revision}"'},
    )


@answers(
    f"PATCH {INPUT} 409 already_consumed",
    f"DELETE {INPUT} 409 already_consumed",
    f"{REORDER} 409 already_consumed",
)
async def after_it_was_read(stage: Stage, route: Route) -> httpx2.Response:
    run, input_id = await stage.steered()
    await stage.ann.decide(run, "approve")
    await stage.ann.settled(run["run_id"])
    return await change(stage, route, run, input_id)


@answers(f"PATCH {INPUT} 409 input_retracted", f"{REORDER} 409 input_retracted")
async def after_nobody_read_it(stage: Stage, route: Route) -> httpx2.Response:
    run, input_id = await stage.steered()
    await stage.cancelled(run)
    return await change(stage, route, run, input_id)


@answers(
    f"PATCH {INPUT} 412 revision_mismatch",
    f"DELETE {INPUT} 412 revision_mismatch",
    f"{REORDER} 412 revision_mismatch",
)
async def after_it_was_changed(stage: Stage, route: Route) -> httpx2.Response:
    run, input_id = await stage.steered()
    return await change(stage, route, run, input_id, revision=7)


@answers(f"{REORDER} 422 input_repeated")
async def twice_in_line(stage: Stage, route: Route) -> httpx2.Response:
    run, input_id = await stage.steered()
    named = {"id": input_id, "revision": 1}
    return await post(stage, route.path.format(**run), {"inputs": [named, named]})


@answers(f"{REORDER} 422 order_impossible")
async def before_the_run_that_is_there(stage: Stage, route: Route) -> httpx2.Response:
    run, input_id = await stage.steered()
    behind = {"messages": [{"role": "user", "content": "later"}]}
    sent = await stage.ann.post(f"/v1/threads/{run['thread_id']}/messages", behind, 202)
    wanted = [{"id": each, "revision": 1} for each in (*sent["input_ids"], input_id)]
    return await post(stage, route.path.format(**run), {"inputs": wanted})
