"""Answers to pauses and resumes, and refusals of messages for a paused run."""

from typing import Any

import httpx2

from tests.support.routes import Route
from tests.surface.inputs import resume, to_both
from tests.surface.scenarios import answers
from tests.surface.stage import Stage

PAUSE, RESUME = "POST /v1/runs/{run_id}/pause", "POST /v1/runs/{run_id}/resume"


@answers(f"{PAUSE} 200", f"{RESUME} 200")
async def of_a_run_that_waits(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, await stage.waiting())


@answers(f"{PAUSE} 202")
async def of_a_run_that_executes(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, await stage.ann.start("talker", "one word after the other"))


@answers(f"{PAUSE} 409 run_finished", f"{RESUME} 409 run_finished")
async def of_a_run_that_has_ended(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, await stage.done())


@answers(f"{PAUSE} 422 backend_unsupported")
async def of_a_run_that_a_remote_agent_executes(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting()
    await stage.execute(
        "UPDATE runs SET agent_id = 'far', status = 'running', waiting_reason = NULL, "
        "waiting_message = NULL, updated_at = now(), "
        "owner = (SELECT id FROM workers ORDER BY heartbeat_at DESC LIMIT 1) WHERE id = $1",
        run["run_id"],
    )
    return await route.ask(stage.ann, run)


async def paused(stage: Stage) -> dict[str, Any]:
    """A run that waits for nothing but its resume."""
    run = await stage.waiting()
    await stage.execute(
        "UPDATE runs SET waiting_reason = 'manual_pause', waiting_message = 'manual_pause', "
        "pause_requested_at = now(), pause_requested_by = 'ann' WHERE id = $1",
        run["run_id"],
    )
    return run


@to_both("409 run_paused")
async def for_a_paused_run(stage: Stage, route: Route) -> httpx2.Response:
    return await resume(stage, route, await paused(stage))
