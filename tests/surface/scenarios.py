"""Refusals of single operations: one small scenario for each.

The key of a scenario is the declared response: operation, status and code.
"""

import json
from collections.abc import Callable
from typing import Any

import httpx2

from app.clock import new_id
from tests.support.routes import UNKNOWN, Route, ids_of
from tests.support.streams import start_body
from tests.surface.common_refusals import Scenario
from tests.surface.servers import APPROVAL, Servers, ticket_of

SCENARIOS: dict[str, Scenario] = {}

DECISIONS = "POST /v1/runs/{run_id}/decisions"


def answers(*declared: str) -> Callable[[Scenario], Scenario]:
    """Registers a scenario for these declared responses."""

    def register(scenario: Scenario) -> Scenario:
        for one in declared:
            assert one not in SCENARIOS, f"{one} is produced twice"
            SCENARIOS[one] = scenario
        return scenario

    return register


async def post(servers: Servers, path: str, body: Any = None) -> httpx2.Response:
    return await servers.ann.http.post(path, json=body)


async def start(servers: Servers, agent: str = "quick", **more: Any) -> httpx2.Response:
    return await post(servers, "/v1/runs", start_body(agent, "hello", **more))


# --- starts ---------------------------------------------------------------------------------------


@answers("POST /v1/runs 404 agent_not_found")
async def of_an_unknown_agent(servers: Servers, route: Route) -> httpx2.Response:
    return await start(servers, "nobody")


@answers("POST /v1/runs 422 agent_required")
async def without_an_agent(servers: Servers, route: Route) -> httpx2.Response:
    return await post(servers, "/v1/runs", {"messages": [{"role": "user", "content": "hello"}]})


@answers("POST /v1/runs 404 thread_not_found")
async def on_an_unknown_thread(servers: Servers, route: Route) -> httpx2.Response:
    return await start(servers, thread_id=UNKNOWN, if_thread_missing="reject")


@answers("POST /v1/runs 409 thread_busy")
async def on_a_busy_thread(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting()
    return await start(servers, thread_id=run["thread_id"], on_active="reject")


@answers("POST /v1/runs 409 run_id_conflict")
async def with_a_taken_run_id(servers: Servers, route: Route) -> httpx2.Response:
    return await start(servers, run_id=(await servers.done())["id"], metadata={"another": 1})


@answers("POST /v1/runs 409 message_id_conflict")
async def with_a_taken_message_id(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.done()
    [known] = run["input"]["trigger_message_ids"]
    another = {"id": known, "role": "user", "content": "another text"}
    return await start(servers, thread_id=run["thread_id"], messages=[another])


@answers("POST /v1/runs 404 message_not_found")
async def replacing_an_unknown_message(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.done()
    return await start(servers, thread_id=run["thread_id"], replaces={"message_id": UNKNOWN})


@answers("POST /v1/runs 404 run_not_found")
async def replacing_an_unknown_run(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.done()
    return await start(servers, thread_id=run["thread_id"], replaces={"run_id": UNKNOWN})


@answers("POST /v1/runs 409 not_replaceable")
async def replacing_a_run_twice(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.done()
    place = {"thread_id": run["thread_id"], "replaces": {"run_id": run["id"]}}
    await servers.ann.ended((await start(servers, **place)).json()["id"])
    return await start(servers, **place)


@answers("POST /v1/runs 409 run_never_began")
async def replacing_a_run_without_messages(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting()
    behind = await servers.ann.start("quick", "hello", thread_id=run["thread_id"])
    await servers.cancelled(behind)
    await servers.cancelled(run)
    place = {"thread_id": run["thread_id"], "replaces": {"run_id": behind["id"]}}
    return await start(servers, **place)


@answers("POST /v1/runs 429 queue_full")
async def behind_a_full_queue(servers: Servers, route: Route) -> httpx2.Response:
    return await start(servers, thread_id=(await servers.queued())["thread_id"])


@answers("POST /v1/runs 422 frontend_tool_taken")
async def with_a_tool_of_the_agents(servers: Servers, route: Route) -> httpx2.Response:
    return await start(servers, frontend_tools=[{"name": "risky"}])


@answers("POST /v1/runs 422 tool_not_found")
async def with_a_tool_that_the_agent_has_not(servers: Servers, route: Route) -> httpx2.Response:
    return await start(servers, tools=["teleport"])


@answers("POST /v1/runs 422 schema_unsupported")
async def with_a_schema_outside_of_the_subset(servers: Servers, route: Route) -> httpx2.Response:
    parameters = {"type": "object", "unevaluatedProperties": False}
    return await start(servers, frontend_tools=[{"name": "show", "parameters": parameters}])


@answers("POST /v1/runs 422 backend_unsupported")
async def with_more_than_a_remote_agent_can(servers: Servers, route: Route) -> httpx2.Response:
    return await start(servers, "far", overrides={"temperature": 0.1})


# --- retries --------------------------------------------------------------------------------------

RETRY = "POST /v1/runs/{run_id}/retry"


async def retry(servers: Servers, run: dict[str, Any], **body: Any) -> httpx2.Response:
    return await post(servers, f"/v1/runs/{run['id']}/retry", body)


@answers(f"{RETRY} 409 run_not_finished")
async def of_a_waiting_run(servers: Servers, route: Route) -> httpx2.Response:
    return await retry(servers, await servers.waiting())


@answers(f"{RETRY} 409 not_retryable")
async def of_a_success(servers: Servers, route: Route) -> httpx2.Response:
    return await retry(servers, await servers.done())


@answers(f"{RETRY} 422 backend_unsupported")
async def with_limits_for_a_remote_agent(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.ann.ended((await servers.ann.start("far", "hello"))["id"])
    return await retry(servers, run, limits={"steps": 3})


@answers("POST /v1/runs 422 price_unknown")
async def with_a_cost_limit_for_a_model_without_a_price(
    servers: Servers, route: Route
) -> httpx2.Response:
    return await start(servers, limits={"cost_usd": 1})


@answers(f"{RETRY} 422 price_unknown")
async def again_with_a_cost_limit(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.cancelled(await servers.waiting())
    return await retry(servers, run, limits={"cost_usd": 1})


@answers(f"{RETRY} 404 agent_not_found")
async def of_a_run_of_an_unknown_agent(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting("gone", 'CALL adjust {"amount": 1}', at=servers.other)
    return await retry(servers, await servers.cancelled(run), agent_version="current")


@answers(f"{RETRY} 429 queue_full")
async def behind_a_full_queue_of_runs(servers: Servers, route: Route) -> httpx2.Response:
    thread = (await servers.queued())["thread_id"]
    last = await servers.other.start("quick", "hello", thread_id=thread)
    return await retry(servers, await servers.cancelled(last))


# --- threads --------------------------------------------------------------------------------------

FORK, THREAD = "POST /v1/threads/{thread_id}/fork", "DELETE /v1/threads/{thread_id}"


@answers("POST /v1/threads 409 thread_exists")
async def with_a_taken_id(servers: Servers, route: Route) -> httpx2.Response:
    return await post(servers, "/v1/threads", {"thread_id": (await servers.done())["thread_id"]})


@answers("POST /v1/threads 404 thread_not_found")
async def of_an_unknown_parent(servers: Servers, route: Route) -> httpx2.Response:
    return await post(servers, "/v1/threads", {"parent_thread_id": UNKNOWN})


@answers(f"{THREAD} 409 has_active_run")
async def with_an_active_run(servers: Servers, route: Route) -> httpx2.Response:
    return await servers.ann.http.delete(f"/v1/threads/{(await servers.waiting())['thread_id']}")


@answers(f"{THREAD} 409 has_children")
async def with_children(servers: Servers, route: Route) -> httpx2.Response:
    thread = (await servers.done())["thread_id"]
    await servers.ann.post("/v1/threads", {"parent_thread_id": thread}, 201)
    return await servers.ann.http.delete(f"/v1/threads/{thread}")


async def fork(servers: Servers, run: dict[str, Any], **body: Any) -> httpx2.Response:
    return await post(servers, f"/v1/threads/{run['thread_id']}/fork", body)


@answers(f"{FORK} 404 run_not_found")
async def up_to_an_unknown_run(servers: Servers, route: Route) -> httpx2.Response:
    return await fork(servers, await servers.done(), run_id=UNKNOWN)


@answers(f"{FORK} 409 run_not_finished")
async def up_to_a_waiting_run(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting()
    return await fork(servers, run, run_id=run["id"])


@answers(f"{FORK} 409 run_never_began")
async def up_to_a_run_that_never_began(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.cancelled(await servers.queued())
    return await fork(servers, run, run_id=run["id"])


@answers(f"{FORK} 409 thread_exists")
async def onto_itself(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.done()
    return await fork(servers, run, thread_id=run["thread_id"])


@answers(f"{FORK} 422 seq_beyond_log")
async def beyond_its_end(servers: Servers, route: Route) -> httpx2.Response:
    return await fork(servers, await servers.done(), to_seq=1000)


@answers("POST /v1/stream-tokens 404 thread_not_found")
async def for_an_unknown_thread(servers: Servers, route: Route) -> httpx2.Response:
    return await post(servers, "/v1/stream-tokens", {"thread_id": UNKNOWN})


# --- decisions ------------------------------------------------------------------------------------


async def decide(
    servers: Servers,
    route: Route,
    run: dict[str, Any],
    action: str = "approve",
    *,
    ticket: str | None = None,
    by_bob: bool = False,
    **fields: Any,
) -> httpx2.Response:
    client = servers.bob if by_bob else servers.ann
    answer: dict[str, Any] = {"ticket_id": ticket or ticket_of(run), "action": action, **fields}
    return await client.http.post(route.path.format(**ids_of(run)), json={"decisions": [answer]})


@answers(f"{DECISIONS} 404 ticket_not_found")
async def for_an_unknown_ticket(servers: Servers, route: Route) -> httpx2.Response:
    return await decide(servers, route, await servers.waiting(), ticket=new_id())


@answers(f"{DECISIONS} 409 ticket_already_decided")
async def after_another_decision(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting()
    await decide(servers, route, run)
    await servers.ann.settled(run["id"])
    return await decide(servers, route, run, "cancel")


@answers(f"{DECISIONS} 410 ticket_expired")
async def after_the_expiry(servers: Servers, route: Route) -> httpx2.Response:
    policy = {"expires_in": 3600, "on_expiry": "reject"}
    run = await servers.waiting(ticket_policy=policy)
    await servers.execute("UPDATE tickets SET expires_at = now() WHERE run_id = $1", run["id"])
    async with servers.ann.events(f"/v1/runs/{run['id']}", follow=1) as stream:
        await stream.until("ticket_expired")
    return await decide(servers, route, run)


@answers(f"{DECISIONS} 410 ticket_void")
async def after_its_run_has_ended(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting()
    await servers.cancelled(run)
    return await decide(servers, route, run)


@answers(f"{DECISIONS} 403 approver_not_allowed")
async def by_a_wrong_approver(servers: Servers, route: Route) -> httpx2.Response:
    return await decide(servers, route, await servers.waiting("guarded"))


@answers(f"{DECISIONS} 409 already_voted")
async def by_the_same_approver_again(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting("board")
    assert (await decide(servers, route, run)).is_success
    return await decide(servers, route, run, decision_id="again")


@answers(f"{DECISIONS} 409 decision_id_conflict")
async def with_the_decision_id_of_another_person(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting("board")
    assert (await decide(servers, route, run, decision_id="mine")).is_success
    return await decide(servers, route, run, decision_id="mine", by_bob=True)


ADJUST, FILL_IN = 'CALL adjust {"amount": 1}', "CALL fill_in {}"


@answers(f"{DECISIONS} 422 arguments_invalid")
async def with_invalid_arguments(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting("asker", ADJUST)
    return await decide(servers, route, run, "edit", arguments={"amount": "much"})


@answers(f"{DECISIONS} 422 response_schema_violation")
async def with_an_invalid_result(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting("asker", FILL_IN)
    return await decide(servers, route, run, "respond", result="many")


@answers(f"{DECISIONS} 409 agent_version_unavailable")
async def for_an_unknown_agent_version(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting("gone", ADJUST, at=servers.other)
    return await decide(servers, route, run, "edit", arguments={"amount": 2})


@answers(f"{DECISIONS} 422 action_not_allowed")
async def with_a_forbidden_action(servers: Servers, route: Route) -> httpx2.Response:
    return await decide(servers, route, await servers.waiting("asker", FILL_IN))


@answers(f"{DECISIONS} 412 args_digest_mismatch")
async def with_a_wrong_digest(servers: Servers, route: Route) -> httpx2.Response:
    return await decide(servers, route, await servers.waiting(), args_digest="sha256:0")


@answers(f"{DECISIONS} 422 remember_not_allowed")
async def with_a_forbidden_remember(servers: Servers, route: Route) -> httpx2.Response:
    return await decide(servers, route, await servers.waiting("asker", ADJUST), remember="run")


@answers(f"{DECISIONS} 422 tickets_of_several_runs")
async def with_tickets_of_a_child_too(servers: Servers, route: Route) -> httpx2.Response:
    work = f"CALL agent_run_quick {json.dumps({'prompt': APPROVAL})}"
    started = await servers.ann.start("chief", work)
    run = await servers.ann.run(started["id"], wait=30)
    decisions = [
        {"ticket_id": ticket["id"], "action": "cancel"} for ticket in run["waiting"]["tickets"]
    ]
    assert len(decisions) == 2
    return await post(servers, route.path.format(**ids_of(run)), {"decisions": decisions})


@answers(f"{DECISIONS} 422 ticket_repeated")
async def with_a_repeated_ticket(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting()
    answer = {"ticket_id": ticket_of(run), "action": "approve"}
    return await post(servers, route.path.format(**ids_of(run)), {"decisions": [answer, answer]})
