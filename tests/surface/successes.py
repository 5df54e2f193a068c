"""Successful responses, one scenario for each status."""

import httpx2

from tests.support.routes import Route, ids_of
from tests.support.streams import EVENT_STREAM, start_body
from tests.surface.common_refusals import existing
from tests.surface.inputs import INPUTS, MESSAGES
from tests.surface.pending_inputs import INPUT, change
from tests.surface.scenarios import FORK, RETRY, answers, decide, post
from tests.surface.servers import Servers, ticket_of

_FOR_EXISTING_IDS = [
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
    "GET /v1/threads/{thread_id}/snapshot",
    "POST /v1/threads/{thread_id}/cancel",
    "GET /v1/tickets",
    "GET /v1/tickets/count",
    "GET /v1/tickets/events",
    "GET /v1/audit",
    "GET /v1/usage",
    "GET /v1/memories",
    "GET /v1/memory-export",
    "GET /v1/memory-deletions",
    "DELETE /v1/memories",
    "GET /v1/threads/{thread_id}/usage",
    "GET /v1/rules",
    "GET /v1/agents",
    "GET /v1/mcp-servers",
    "GET /v1/tools",
    "GET /v1/me",
    "GET /v1/workers",
    "GET /v1/changes",
    "GET /v1/run-summaries",
    "GET /v1/queue",
    "GET /v1/system",
    "GET /v1/stats/runs",
    "GET /health",
    "GET /health/live",
]


@answers(*(f"{operation} 200" for operation in _FOR_EXISTING_IDS))
async def of_a_finished_run(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, await existing(servers))


@answers("DELETE /v1/threads/{thread_id} 204")
async def of_an_idle_thread(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, await existing(servers))


@answers("POST /v1/threads 201", "POST /v1/runs 202")
async def of_something_new(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, {})


@answers("GET /v1/agents/{agent_id} 200")
async def of_an_agent(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, {"agent_id": "quick"})


@answers("GET /health 503")
async def of_a_server_without_a_database(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.away, {})


@answers("POST /v1/runs 200")
async def within_the_preferred_wait(servers: Servers, route: Route) -> httpx2.Response:
    return await servers.ann.http.post(
        "/v1/runs", json=start_body("quick", "hello"), headers={"Prefer": "wait=20"}
    )


@answers("GET /v1/runs/{run_id} 304", "GET /v1/run-summaries 304")
async def unmodified(servers: Servers, route: Route) -> httpx2.Response:
    ids = await existing(servers)
    seen = await route.ask(servers.ann, ids)
    return await route.ask(servers.ann, ids, headers={"If-None-Match": seen.headers["etag"]})


@answers("GET /v1/runs/{run_id}/events 204")
async def after_the_end(servers: Servers, route: Route) -> httpx2.Response:
    ids = await existing(servers)
    last = (await servers.ann.log(f"/v1/runs/{ids['run_id']}"))[-1]["seq"]
    return await route.ask(servers.ann, ids, headers={**EVENT_STREAM, "Last-Event-ID": str(last)})


@answers("POST /v1/runs/{run_id}/cancel 202", "POST /v1/threads/{thread_id}/cancel 202")
async def of_a_running_run(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(
        servers.ann, ids_of(await servers.ann.start("talker", "one word after the other"))
    )


@answers("POST /v1/runs/{run_id}/decisions 200")
async def of_a_decision(servers: Servers, route: Route) -> httpx2.Response:
    return await decide(servers, route, await servers.waiting())


@answers("POST /v1/decisions 200")
async def of_decisions_about_several_runs(servers: Servers, route: Route) -> httpx2.Response:
    decisions = [
        {"ticket_id": ticket_of(await servers.waiting()), "action": "approve"} for _ in range(2)
    ]
    return await servers.ann.http.post("/v1/decisions", json={"decisions": decisions})


@answers("GET /v1/runs/{run_id}/events/{seq} 200")
async def of_one_event(servers: Servers, route: Route) -> httpx2.Response:
    ids = await existing(servers)
    [first, *_] = await servers.ann.log(f"/v1/runs/{ids['run_id']}")
    return await servers.ann.http.get(f"/v1/runs/{ids['run_id']}/events/{first['seq']}")


@answers("GET /v1/tickets/{ticket_id} 200")
async def of_a_ticket(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, {"ticket_id": ticket_of(await servers.waiting())})


@answers("DELETE /v1/rules/{rule_id} 204")
async def of_a_rule(servers: Servers, route: Route) -> httpx2.Response:
    decided = await servers.ann.decide(await servers.waiting(), "approve", remember="run")
    return await route.ask(servers.ann, {"rule_id": decided["results"][0]["rule_id"]})


@answers("POST /v1/runs/{run_id}/tasks/{task_id}/cancel 200")
async def of_a_task(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.ann.settled((await servers.ann.start("delegate", "CALL later {}"))["id"])
    [task] = (await servers.ann.get(f"/v1/runs/{run['id']}/tasks"))["items"]
    return await route.ask(servers.ann, {"run_id": run["id"], "task_id": task["id"]})


@answers(f"{RETRY} 202")
async def of_a_failed_run(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, ids_of(await servers.cancelled(await servers.waiting())))


@answers(f"{INPUTS} 202", f"{MESSAGES} 202")
async def of_another_message(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, await existing(servers))


@answers(f"GET {INPUT} 200", f"PATCH {INPUT} 200", f"DELETE {INPUT} 204")
async def of_a_pending_message(servers: Servers, route: Route) -> httpx2.Response:
    run, input_id = await servers.steered()
    return await change(servers, route, run, input_id)


@answers(f"{FORK} 201")
async def of_a_fork(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, await existing(servers))


@answers("POST /v1/stream-tokens 201")
async def of_a_token(servers: Servers, route: Route) -> httpx2.Response:
    return await post(servers, "/v1/stream-tokens", {"inbox": True})


SHELF = {"server_id": "shelf"}
_LISTED = """
INSERT INTO mcp_tools (tenant, server, name, digest, described) VALUES ('*', 'shelf', 'work', 'sha256:0', '{}')
ON CONFLICT DO NOTHING
"""


@answers("GET /v1/mcp-servers/{server_id} 200", "POST /v1/mcp-servers/{server_id}/restart 202")
async def of_an_mcp_server(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.root, SHELF)


@answers("DELETE /v1/mcp-servers/{server_id}/authorization 204")
async def of_access_that_is_withdrawn(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.root, SHELF)


@answers("POST /v1/mcp-servers/{server_id}/tools/accept 200")
async def of_a_tool_that_is_listed(servers: Servers, route: Route) -> httpx2.Response:
    await servers.execute(_LISTED)
    return await route.ask(servers.root, SHELF)


@answers("POST /v1/mcp-servers/{server_id}/tools/accept 409 mcp_tool_changed")
async def of_a_tool_that_has_changed(servers: Servers, route: Route) -> httpx2.Response:
    body = {"digests": ["sha256:another"]}
    path = route.path.format(**SHELF)
    return await servers.root.http.post(path, json=body)
