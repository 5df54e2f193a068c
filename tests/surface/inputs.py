"""Refusals of messages for runs that are there: sent to them, changed while they wait, put in order."""

from typing import Any

import httpx2

from tests.support.routes import Route
from tests.surface.scenarios import answers, post
from tests.surface.stage import Stage

INPUTS, MESSAGES = "POST /v1/runs/{run_id}/inputs", "POST /v1/threads/{thread_id}/messages"
INPUT = "/v1/threads/{thread_id}/inputs/{input_id}"


def more(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "more"}], **fields}


@answers(f"{INPUTS} 409 run_finished")
async def for_a_run_that_has_ended(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.done()
    return await post(stage, f"/v1/runs/{run['run_id']}/inputs", more(mode="steer"))


@answers(f"{INPUTS} 409 not_steerable")
async def for_a_run_on_its_way_out(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting()
    await stage.execute("UPDATE runs SET cancel_requested_at = now() WHERE id = $1", run["run_id"])
    return await post(stage, f"/v1/runs/{run['run_id']}/inputs", more(mode="steer"))


@answers(f"{INPUTS} 429 queue_full")
async def behind_a_run_and_another(stage: Stage, route: Route) -> httpx2.Response:
    return await post(stage, f"/v1/runs/{(await stage.queued())['run_id']}/inputs", more())


@answers(f"{MESSAGES} 429 queue_full")
async def at_the_end_of_a_full_line(stage: Stage, route: Route) -> httpx2.Response:
    return await post(stage, f"/v1/threads/{(await stage.queued())['thread_id']}/messages", more())


@answers(f"{MESSAGES} 404 agent_not_found")
async def for_nobody(stage: Stage, route: Route) -> httpx2.Response:
    thread = (await stage.done())["thread_id"]
    return await post(stage, f"/v1/threads/{thread}/messages", more(agent_id="nobody"))


@answers(f"{MESSAGES} 422 agent_required")
async def for_whoever_comes(stage: Stage, route: Route) -> httpx2.Response:
    thread = (await stage.ann.post("/v1/threads", {}, 201))["thread_id"]
    return await post(stage, f"/v1/threads/{thread}/messages", more())


async def change_input(
    stage: Stage, route: Route, run: dict[str, Any], input_id: str, revision: int = 1
) -> httpx2.Response:
    ids = {"thread_id": run["thread_id"], "input_id": input_id}
    return await stage.ann.http.request(
        route.method,
        route.path.format(**ids),
        json={"message": {"role": "user", "content": "instead"}}
        if route.method == "PATCH"
        else None,
        headers={"If-Match": f'"{revision}"'},
    )


@answers(f"PATCH {INPUT} 409 already_consumed", f"DELETE {INPUT} 409 already_consumed")
async def after_it_was_read(stage: Stage, route: Route) -> httpx2.Response:
    run, input_id = await stage.steered()
    await stage.ann.decide(run, "approve")
    await stage.ann.settled(run["run_id"])
    return await change_input(stage, route, run, input_id)


@answers(f"PATCH {INPUT} 409 input_retracted")
async def after_nobody_read_it(stage: Stage, route: Route) -> httpx2.Response:
    run, input_id = await stage.steered()
    await stage.cancelled(run)
    return await change_input(stage, route, run, input_id)


@answers(f"PATCH {INPUT} 412 revision_mismatch")
async def after_it_was_changed(stage: Stage, route: Route) -> httpx2.Response:
    run, input_id = await stage.steered()
    return await change_input(stage, route, run, input_id, revision=7)
