"""Answers to pauses and resumes, and refusals of messages for a paused run."""

from typing import Any

import httpx2

from tests.support.routes import Route, ids_of
from tests.surface.inputs import resume, to_both
from tests.surface.scenarios import answers
from tests.surface.servers import Servers

PAUSE, RESUME = "POST /v1/runs/{run_id}/pause", "POST /v1/runs/{run_id}/resume"


@answers(f"{PAUSE} 200", f"{RESUME} 200")
async def of_a_waiting_run(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, ids_of(await servers.waiting()))


@answers(f"{PAUSE} 202")
async def of_a_running_run(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(
        servers.ann, ids_of(await servers.ann.start("talker", "one word after the other"))
    )


@answers(f"{PAUSE} 409 run_finished", f"{RESUME} 409 run_finished")
async def of_a_finished_run(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, ids_of(await servers.done()))


@answers(f"{PAUSE} 422 backend_unsupported")
async def of_a_run_of_a_remote_agent(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting()
    await servers.execute(
        "UPDATE runs SET agent_id = 'far', status = 'running', waiting_reason = NULL, "
        "waiting_message = NULL, updated_at = now(), "
        "owner = (SELECT id FROM workers ORDER BY heartbeat_at DESC LIMIT 1) WHERE id = $1",
        run["id"],
    )
    return await route.ask(servers.ann, ids_of(run))


async def paused(servers: Servers) -> dict[str, Any]:
    """A run that is suspended by a pause."""
    run = await servers.waiting()
    await servers.execute(
        "UPDATE runs SET waiting_reason = 'manual_pause', waiting_message = 'manual_pause', "
        "pause_requested_at = now(), pause_requested_by = 'ann' WHERE id = $1",
        run["id"],
    )
    return run


@to_both("409 run_paused")
async def for_a_paused_run(servers: Servers, route: Route) -> httpx2.Response:
    return await resume(servers, route, await paused(servers))
