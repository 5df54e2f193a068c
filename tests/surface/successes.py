"""The answers of operations that do what they are asked, one scenario for each status."""

import httpx2

from tests.support.routes import Route
from tests.support.streams import EVENT_STREAM, start_body
from tests.surface.everywhere import existing
from tests.surface.inputs import INPUTS, MESSAGES
from tests.surface.scenarios import FORK, RETRY, answers, decide, post
from tests.surface.stage import Stage, ticket_of
from tests.surface.unread import INPUT, change

_OF_WHAT_THERE_IS = [
    "GET /v1/runs",
    "GET /v1/runs/{run_id}",
    "GET /v1/runs/{run_id}/events",
    "GET /v1/runs/{run_id}/snapshot",
    "GET /v1/runs/{run_id}/explain",
    "GET /v1/runs/{run_id}/audit",
    "GET /v1/runs/{run_id}/tasks",
    "GET /v1/runs/{run_id}/children",
    "GET /v1/runs/{run_id}/artifacts",
    "POST /v1/runs/{run_id}/cancel",
    "GET /v1/threads",
    "GET /v1/threads/{thread_id}",
    "PATCH /v1/threads/{thread_id}",
    "GET /v1/threads/{thread_id}/messages",
    "GET /v1/threads/{thread_id}/inputs",
    "GET /v1/threads/{thread_id}/runs",
    "GET /v1/threads/{thread_id}/events",
    "POST /v1/threads/{thread_id}/cancel",
    "GET /v1/tickets",
    "GET /v1/tickets/events",
    "GET /v1/audit",
    "GET /v1/rules",
    "GET /v1/agents",
    "GET /health",
    "GET /health/live",
]


@answers(*(f"{operation} 200" for operation in _OF_WHAT_THERE_IS))
async def of_a_run_that_is_done(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, await existing(stage))


@answers("DELETE /v1/threads/{thread_id} 204")
async def of_a_thread_at_rest(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, await existing(stage))


@answers("POST /v1/threads 201", "POST /v1/runs 202")
async def of_something_new(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, {})


@answers("GET /v1/agents/{agent_id} 200")
async def of_an_agent(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, {"agent_id": "quick"})


@answers("GET /health 503")
async def of_a_server_without_a_database(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.away, {})


@answers("POST /v1/runs 200")
async def in_time(stage: Stage, route: Route) -> httpx2.Response:
    return await stage.ann.http.post(
        "/v1/runs", json=start_body("quick", "hello"), headers={"Prefer": "wait=20"}
    )


@answers("GET /v1/runs/{run_id} 304")
async def as_it_was(stage: Stage, route: Route) -> httpx2.Response:
    ids = await existing(stage)
    seen = await route.ask(stage.ann, ids)
    return await route.ask(stage.ann, ids, headers={"If-None-Match": seen.headers["etag"]})


@answers("GET /v1/runs/{run_id}/events 204")
async def after_the_end(stage: Stage, route: Route) -> httpx2.Response:
    ids = await existing(stage)
    last = (await stage.ann.log(f"/v1/runs/{ids['run_id']}"))[-1]["seq"]
    return await route.ask(stage.ann, ids, headers={**EVENT_STREAM, "Last-Event-ID": str(last)})


@answers("POST /v1/runs/{run_id}/cancel 202", "POST /v1/threads/{thread_id}/cancel 202")
async def of_a_run_that_is_at_work(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, await stage.ann.start("talker", "one word after the other"))


@answers("POST /v1/runs/{run_id}/decisions 200")
async def of_an_answer(stage: Stage, route: Route) -> httpx2.Response:
    return await decide(stage, route, await stage.waiting())


@answers("GET /v1/tickets/{id} 200")
async def of_a_ticket(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, {"id": ticket_of(await stage.waiting())})


@answers("DELETE /v1/rules/{id} 204")
async def of_a_rule(stage: Stage, route: Route) -> httpx2.Response:
    decided = await stage.ann.decide(await stage.waiting(), "approve", remember="run")
    return await route.ask(stage.ann, {"id": decided["results"][0]["rule_id"]})


@answers("POST /v1/runs/{run_id}/tasks/{task_id}/cancel 200")
async def of_a_task(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.ann.settled((await stage.ann.start("delegate", "CALL later {}"))["run_id"])
    [task] = (await stage.ann.get(f"/v1/runs/{run['run_id']}/tasks"))["items"]
    return await route.ask(stage.ann, {"run_id": run["run_id"], "task_id": task["id"]})


@answers(f"{RETRY} 202")
async def of_a_failed_run(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, await stage.cancelled(await stage.waiting()))


@answers(f"{INPUTS} 202", f"{MESSAGES} 202")
async def of_more_to_read(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, await existing(stage))


@answers(f"GET {INPUT} 200", f"PATCH {INPUT} 200", f"DELETE {INPUT} 204")
async def of_a_message_that_waits(stage: Stage, route: Route) -> httpx2.Response:
    run, input_id = await stage.steered()
    return await change(stage, route, run, input_id)


@answers(f"{FORK} 201")
async def of_a_copy(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, await existing(stage))


@answers("POST /v1/stream-tokens 201")
async def of_a_token(stage: Stage, route: Route) -> httpx2.Response:
    return await post(stage, "/v1/stream-tokens", {"inbox": True})
