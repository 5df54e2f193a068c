"""Refusals of single operations: how each comes about, one small scenario for each.

A scenario's name in the registry is what the document declares: operation, status and code.
"""

from collections.abc import Callable
from typing import Any

import httpx2

from tests.support.routes import UNKNOWN, Route
from tests.support.streams import start_body
from tests.surface.everywhere import Scenario
from tests.surface.stage import Stage, ticket_of

SCENARIOS: dict[str, Scenario] = {}

DECISIONS = "POST /v1/runs/{run_id}/decisions"


def answers(*declared: str) -> Callable[[Scenario], Scenario]:
    """What is declared, and produced by this."""

    def keep(scenario: Scenario) -> Scenario:
        for one in declared:
            assert one not in SCENARIOS, f"{one} is produced twice"
            SCENARIOS[one] = scenario
        return scenario

    return keep


async def post(stage: Stage, path: str, body: Any = None) -> httpx2.Response:
    return await stage.ann.http.post(path, json=body)


async def start(stage: Stage, agent: str = "quick", **more: Any) -> httpx2.Response:
    return await post(stage, "/v1/runs", start_body(agent, "hello", **more))


# --- starts ---------------------------------------------------------------------------------------


@answers("POST /v1/runs 404 agent_not_found")
async def of_nobody(stage: Stage, route: Route) -> httpx2.Response:
    return await start(stage, "nobody")


@answers("POST /v1/runs 422 agent_required")
async def of_whoever(stage: Stage, route: Route) -> httpx2.Response:
    return await post(stage, "/v1/runs", {"messages": [{"role": "user", "content": "hello"}]})


@answers("POST /v1/runs 404 thread_not_found")
async def on_no_thread(stage: Stage, route: Route) -> httpx2.Response:
    return await start(stage, thread_id=UNKNOWN, if_thread_missing="reject")


@answers("POST /v1/runs 409 thread_busy")
async def on_a_busy_thread(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting()
    return await start(stage, thread_id=run["thread_id"], on_active="reject")


@answers("POST /v1/runs 409 run_id_conflict")
async def under_a_taken_id(stage: Stage, route: Route) -> httpx2.Response:
    return await start(stage, run_id=(await stage.done())["run_id"], metadata={"another": 1})


@answers("POST /v1/runs 429 queue_full")
async def behind_too_many(stage: Stage, route: Route) -> httpx2.Response:
    return await start(stage, thread_id=(await stage.queued())["thread_id"])


@answers("POST /v1/runs 422 frontend_tool_taken")
async def with_a_tool_of_the_agents(stage: Stage, route: Route) -> httpx2.Response:
    return await start(stage, frontend_tools=[{"name": "risky"}])


@answers("POST /v1/runs 422 schema_unsupported")
async def with_a_schema_outside_of_the_subset(stage: Stage, route: Route) -> httpx2.Response:
    parameters = {"type": "object", "unevaluatedProperties": False}
    return await start(stage, frontend_tools=[{"name": "show", "parameters": parameters}])


@answers("POST /v1/runs 422 backend_unsupported")
async def with_more_than_a_remote_agent_can(stage: Stage, route: Route) -> httpx2.Response:
    return await start(stage, "far", overrides={"temperature": 0.1})


# --- retries --------------------------------------------------------------------------------------

RETRY = "POST /v1/runs/{run_id}/retry"


async def retry(stage: Stage, run: dict[str, Any], **body: Any) -> httpx2.Response:
    return await post(stage, f"/v1/runs/{run['run_id']}/retry", body)


@answers(f"{RETRY} 409 run_not_finished")
async def of_a_run_that_waits(stage: Stage, route: Route) -> httpx2.Response:
    return await retry(stage, await stage.waiting())


@answers(f"{RETRY} 409 not_retryable")
async def of_a_success(stage: Stage, route: Route) -> httpx2.Response:
    return await retry(stage, await stage.done())


@answers(f"{RETRY} 422 backend_unsupported")
async def within_limits_that_nobody_keeps(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.ann.ended((await stage.ann.start("far", "hello"))["run_id"])
    return await retry(stage, run, limits={"steps": 3})


@answers(f"{RETRY} 404 agent_not_found")
async def by_an_agent_of_elsewhere(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting("gone", 'CALL adjust {"amount": 1}', at=stage.other)
    return await retry(stage, await stage.cancelled(run), agent_version="current")


@answers(f"{RETRY} 429 queue_full")
async def of_the_last_in_a_long_line(stage: Stage, route: Route) -> httpx2.Response:
    thread = (await stage.queued())["thread_id"]
    last = await stage.other.start("quick", "hello", thread_id=thread)
    return await retry(stage, await stage.cancelled(last))


# --- threads --------------------------------------------------------------------------------------

FORK, THREAD = "POST /v1/threads/{thread_id}/fork", "DELETE /v1/threads/{thread_id}"


@answers("POST /v1/threads 409 thread_exists")
async def under_a_taken_name(stage: Stage, route: Route) -> httpx2.Response:
    return await post(stage, "/v1/threads", {"thread_id": (await stage.done())["thread_id"]})


@answers("POST /v1/threads 404 thread_not_found")
async def of_no_parent(stage: Stage, route: Route) -> httpx2.Response:
    return await post(stage, "/v1/threads", {"parent_thread_id": UNKNOWN})


@answers(f"{THREAD} 409 has_active_run")
async def while_it_is_used(stage: Stage, route: Route) -> httpx2.Response:
    return await stage.ann.http.delete(f"/v1/threads/{(await stage.waiting())['thread_id']}")


@answers(f"{THREAD} 409 has_children")
async def while_it_is_a_parent(stage: Stage, route: Route) -> httpx2.Response:
    thread = (await stage.done())["thread_id"]
    await stage.ann.post("/v1/threads", {"parent_thread_id": thread}, 201)
    return await stage.ann.http.delete(f"/v1/threads/{thread}")


async def fork(stage: Stage, run: dict[str, Any], **body: Any) -> httpx2.Response:
    return await post(stage, f"/v1/threads/{run['thread_id']}/fork", body)


@answers(f"{FORK} 404 run_not_found")
async def up_to_no_run(stage: Stage, route: Route) -> httpx2.Response:
    return await fork(stage, await stage.done(), run_id=UNKNOWN)


@answers(f"{FORK} 409 run_not_finished")
async def up_to_a_run_that_goes_on(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting()
    return await fork(stage, run, run_id=run["run_id"])


@answers(f"{FORK} 409 run_never_began")
async def up_to_a_run_that_left_nothing(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.cancelled(await stage.queued())
    return await fork(stage, run, run_id=run["run_id"])


@answers(f"{FORK} 409 thread_exists")
async def onto_itself(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.done()
    return await fork(stage, run, thread_id=run["thread_id"])


@answers(f"{FORK} 422 seq_beyond_log")
async def beyond_its_end(stage: Stage, route: Route) -> httpx2.Response:
    return await fork(stage, await stage.done(), from_seq=1000)


@answers("POST /v1/stream-tokens 404 thread_not_found")
async def for_no_thread(stage: Stage, route: Route) -> httpx2.Response:
    return await post(stage, "/v1/stream-tokens", {"thread_id": UNKNOWN})


# --- decisions ------------------------------------------------------------------------------------


async def decide(
    stage: Stage,
    route: Route,
    run: dict[str, Any],
    action: str = "approve",
    *,
    ticket: str | None = None,
    by_bob: bool = False,
    **fields: Any,
) -> httpx2.Response:
    client = stage.bob if by_bob else stage.ann
    answer: dict[str, Any] = {"ticket_id": ticket or ticket_of(run), "action": action, **fields}
    return await client.http.post(route.path.format(**run), json={"decisions": [answer]})


@answers(f"{DECISIONS} 404 ticket_not_found")
async def to_no_ticket(stage: Stage, route: Route) -> httpx2.Response:
    return await decide(stage, route, await stage.waiting(), ticket="nothing")


@answers(f"{DECISIONS} 409 ticket_already_decided")
async def after_another(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting()
    await decide(stage, route, run)
    await stage.ann.settled(run["run_id"])
    return await decide(stage, route, run, "cancel")


@answers(f"{DECISIONS} 410 ticket_expired")
async def too_late(stage: Stage, route: Route) -> httpx2.Response:
    policy = {"expires_in": 3600, "on_expiry": "reject"}
    run = await stage.waiting(ticket_policy=policy)
    await stage.execute("UPDATE tickets SET expires_at = now() WHERE run_id = $1", run["run_id"])
    async with stage.ann.events(f"/v1/runs/{run['run_id']}", follow=1) as stream:
        await stream.until("ticket_expired")
    return await decide(stage, route, run)


@answers(f"{DECISIONS} 410 ticket_void")
async def after_its_run_has_ended(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting()
    await stage.cancelled(run)
    return await decide(stage, route, run)


@answers(f"{DECISIONS} 403 approver_not_allowed")
async def by_the_wrong_person(stage: Stage, route: Route) -> httpx2.Response:
    return await decide(stage, route, await stage.waiting("guarded"))


@answers(f"{DECISIONS} 409 already_voted")
async def for_the_second_time(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting("board")
    assert (await decide(stage, route, run)).is_success
    return await decide(stage, route, run, decision_id="again")


@answers(f"{DECISIONS} 409 decision_id_conflict")
async def under_an_id_of_anothers(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting("board")
    assert (await decide(stage, route, run, decision_id="mine")).is_success
    return await decide(stage, route, run, decision_id="mine", by_bob=True)


ADJUST, FILL_IN = 'CALL adjust {"amount": 1}', "CALL fill_in {}"


@answers(f"{DECISIONS} 422 arguments_invalid")
async def with_impossible_arguments(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting("asker", ADJUST)
    return await decide(stage, route, run, "edit", arguments={"amount": "much"})


@answers(f"{DECISIONS} 422 response_schema_violation")
async def with_another_result(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting("asker", FILL_IN)
    return await decide(stage, route, run, "respond", result="many")


@answers(f"{DECISIONS} 409 agent_version_unavailable")
async def where_the_agent_is_unknown(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting("gone", ADJUST, at=stage.other)
    return await decide(stage, route, run, "edit", arguments={"amount": 2})


@answers(f"{DECISIONS} 422 action_not_allowed")
async def in_a_way_that_makes_no_sense(stage: Stage, route: Route) -> httpx2.Response:
    return await decide(stage, route, await stage.waiting("asker", FILL_IN))


@answers(f"{DECISIONS} 412 args_digest_mismatch")
async def about_something_else(stage: Stage, route: Route) -> httpx2.Response:
    return await decide(stage, route, await stage.waiting(), args_digest="sha256:0")


@answers(f"{DECISIONS} 422 remember_not_allowed")
async def for_good(stage: Stage, route: Route) -> httpx2.Response:
    return await decide(stage, route, await stage.waiting("asker", ADJUST), remember="run")


@answers(f"{DECISIONS} 422 ticket_repeated")
async def twice_at_once(stage: Stage, route: Route) -> httpx2.Response:
    run = await stage.waiting()
    answer = {"ticket_id": ticket_of(run), "action": "approve"}
    return await post(stage, route.path.format(**run), {"decisions": [answer, answer]})
