"""Refusals of messages for runs: sent to one that is there, or to whatever goes on on a thread."""

from collections.abc import Callable
from typing import Any

import httpx2

from tests.support.routes import Route
from tests.surface.everywhere import Scenario
from tests.surface.scenarios import ADJUST, FILL_IN, answers, post
from tests.surface.stage import Stage

INPUTS, MESSAGES = "POST /v1/runs/{run_id}/inputs", "POST /v1/threads/{thread_id}/messages"
PICTURE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
}


def to_both(code: str) -> Callable[[Scenario], Scenario]:
    return answers(f"{INPUTS} {code}", f"{MESSAGES} {code}")


async def send(
    stage: Stage, route: Route, run: dict[str, Any], content: Any = "more", **fields: Any
) -> httpx2.Response:
    """To a run, or to the thread that it is on."""
    messages = [{"role": "user", "content": content}]
    return await post(stage, route.path.format(**run), {"messages": messages, **fields})


# --- for a new run --------------------------------------------------------------------------------


@to_both("429 queue_full")
async def at_the_end_of_a_full_line(stage: Stage, route: Route) -> httpx2.Response:
    return await send(stage, route, await stage.queued())


@to_both("422 backend_unsupported")
async def with_limits_that_nobody_keeps(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.ann.start("far", "hello")
    return await send(stage, route, run, limits={"steps": 3})


@answers(f"{MESSAGES} 404 agent_not_found")
async def for_nobody(stage: Stage, route: Route) -> httpx2.Response:
    return await send(stage, route, await stage.done(), agent_id="nobody")


@answers(f"{INPUTS} 404 agent_not_found")
async def behind_a_run_of_elsewhere(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting("gone", ADJUST, at=stage.other)
    return await send(stage, route, run)


@answers(f"{MESSAGES} 422 agent_required")
async def for_whoever_comes(stage: Stage, route: Route) -> httpx2.Response:
    return await send(stage, route, await stage.ann.post("/v1/threads", {}, 201))


# --- for one that is there ------------------------------------------------------------------------


async def resume(
    stage: Stage, route: Route, run: dict[str, Any], content: Any = "more"
) -> httpx2.Response:
    return await send(stage, route, run, content, mode="resume_open_run")


@answers(f"{INPUTS} 409 run_finished")
async def for_a_run_that_has_ended(stage: Stage, route: Route) -> httpx2.Response:
    return await send(stage, route, await stage.done(), mode="steer")


@to_both("409 not_steerable")
async def for_a_run_on_its_way_out(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting()
    await stage.execute("UPDATE runs SET cancel_requested_at = now() WHERE id = $1", run["run_id"])
    return await resume(stage, route, run)


@answers(f"{INPUTS} 409 run_not_waiting")
async def for_a_run_that_has_not_begun(stage: Stage, route: Route) -> httpx2.Response:
    return await resume(stage, route, await stage.queued())


@answers(f"{MESSAGES} 409 run_not_waiting")
async def where_nothing_goes_on(stage: Stage, route: Route) -> httpx2.Response:
    return await resume(stage, route, await stage.done())


@to_both("409 decisions_needed")
async def where_words_decide_nothing(stage: Stage, route: Route) -> httpx2.Response:
    return await resume(stage, route, await stage.waiting())


@to_both("409 agent_version_unavailable")
async def where_the_agent_is_not_to_be_had(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting("asker", ADJUST)
    await stage.execute("UPDATE runs SET agent_version = 'gone' WHERE id = $1", run["run_id"])
    await stage.ann.decide(run, "approve")
    async with stage.ann.events(f"/v1/runs/{run['run_id']}", follow=1) as stream:
        await stream.until("run_finish", 2)
    return await resume(stage, route, run)


@to_both("422 answer_without_text")
async def with_a_picture_for_an_answer(stage: Stage, route: Route) -> httpx2.Response:
    return await resume(stage, route, await stage.waiting("asker", FILL_IN), [PICTURE])


@to_both("422 response_schema_violation")
async def with_words_for_a_number(stage: Stage, route: Route) -> httpx2.Response:
    return await resume(stage, route, await stage.waiting("asker", FILL_IN), "many")
