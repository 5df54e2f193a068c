"""Refusals of messages that are sent to a run or to a thread."""

from collections.abc import Callable
from typing import Any

import httpx2

from tests.support.routes import UNKNOWN, Route, ids_of
from tests.surface.common_refusals import Scenario
from tests.surface.scenarios import ADJUST, FILL_IN, answers, post
from tests.surface.servers import Servers

INPUTS, MESSAGES = "POST /v1/runs/{run_id}/inputs", "POST /v1/threads/{thread_id}/messages"
PICTURE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
}


def to_both(code: str) -> Callable[[Scenario], Scenario]:
    return answers(f"{INPUTS} {code}", f"{MESSAGES} {code}")


async def send(
    servers: Servers, route: Route, run: dict[str, Any], content: Any = "more", **fields: Any
) -> httpx2.Response:
    """Send a message to a run, or to its thread."""
    messages = [{"role": "user", "content": content}]
    return await post(servers, route.path.format(**ids_of(run)), {"messages": messages, **fields})


# --- new runs -------------------------------------------------------------------------------------


@to_both("429 queue_full")
async def behind_a_full_queue(servers: Servers, route: Route) -> httpx2.Response:
    return await send(servers, route, await servers.queued())


@to_both("422 backend_unsupported")
async def with_limits_for_a_remote_agent(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.ann.start("far", "hello")
    return await send(servers, route, run, limits={"steps": 3})


@to_both("409 message_id_conflict")
async def with_a_taken_message_id(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.done()
    [known] = run["input"]["trigger_message_ids"]
    another = [{"id": known, "role": "user", "content": "another text"}]
    return await post(servers, route.path.format(**ids_of(run)), {"messages": another})


async def an_upload(
    servers: Servers, content: bytes = b"hello", media_type: str = "text/plain"
) -> httpx2.Response:
    return await servers.ann.http.post(
        "/v1/files", content=content, headers={"Content-Type": media_type}
    )


def an_image_of(file_id: str) -> list[dict[str, Any]]:
    return [{"type": "image", "source": {"type": "file", "file_id": file_id}}]


@to_both("404 file_not_found")
async def with_an_unknown_file(servers: Servers, route: Route) -> httpx2.Response:
    return await send(servers, route, await servers.done(), an_image_of(UNKNOWN))


@to_both("422 media_type_mismatch")
async def with_a_text_as_an_image(servers: Servers, route: Route) -> httpx2.Response:
    file_id = (await an_upload(servers)).json()["id"]
    return await send(servers, route, await servers.done(), an_image_of(file_id))


@answers("POST /v1/runs 404 file_not_found")
async def about_an_unknown_file(servers: Servers, route: Route) -> httpx2.Response:
    messages = [{"role": "user", "content": an_image_of(UNKNOWN)}]
    return await post(servers, "/v1/runs", {"agent_id": "quick", "messages": messages})


@answers("POST /v1/runs 422 media_type_mismatch")
async def about_a_text_as_an_image(servers: Servers, route: Route) -> httpx2.Response:
    file_id = (await an_upload(servers)).json()["id"]
    messages = [{"role": "user", "content": an_image_of(file_id)}]
    return await post(servers, "/v1/runs", {"agent_id": "quick", "messages": messages})


@answers("POST /v1/files 201")
async def a_new_file(servers: Servers, route: Route) -> httpx2.Response:
    return await an_upload(servers)


@answers("POST /v1/files 422 file_empty")
async def without_bytes(servers: Servers, route: Route) -> httpx2.Response:
    return await an_upload(servers, b"")


@answers("POST /v1/files 422 media_type_mismatch")
async def of_another_type(servers: Servers, route: Route) -> httpx2.Response:
    return await an_upload(servers, b"hello", "image/png")


@answers(
    "GET /v1/files/{file_id} 200",
    "GET /v1/files/{file_id}/content 200",
    "DELETE /v1/files/{file_id} 204",
)
async def of_an_uploaded_file(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, {"file_id": (await an_upload(servers)).json()["id"]})


@answers("GET /v1/files/{file_id}/content 206")
async def of_a_range(servers: Servers, route: Route) -> httpx2.Response:
    file_id = (await an_upload(servers)).json()["id"]
    return await route.ask(servers.ann, {"file_id": file_id}, headers={"Range": "bytes=0-1"})


@answers("GET /v1/files/{file_id}/content 304")
async def of_known_bytes(servers: Servers, route: Route) -> httpx2.Response:
    file = (await an_upload(servers)).json()
    known = {"If-None-Match": '"' + file["sha256"] + '"'}
    return await route.ask(servers.ann, {"file_id": file["id"]}, headers=known)


@answers(
    "GET /v1/files/{file_id} 404 file_not_found",
    "GET /v1/files/{file_id}/content 404 file_not_found",
    "DELETE /v1/files/{file_id} 404 file_not_found",
)
async def of_an_unknown_file(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, {"file_id": UNKNOWN})


@answers("GET /v1/files 200")
async def of_all_files(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, {})


@answers("GET /v1/files 404 thread_not_found")
async def of_an_unknown_thread(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, {}, params={"thread_id": UNKNOWN})


@to_both("422 price_unknown")
async def with_a_cost_limit_for_a_model_without_a_price(
    servers: Servers, route: Route
) -> httpx2.Response:
    return await send(servers, route, await servers.done(), limits={"cost_usd": 1})


@answers(f"{MESSAGES} 404 agent_not_found")
async def for_an_unknown_agent(servers: Servers, route: Route) -> httpx2.Response:
    return await send(servers, route, await servers.done(), agent_id="nobody")


@answers(f"{INPUTS} 404 agent_not_found")
async def behind_a_run_of_an_unknown_agent(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting("gone", ADJUST, at=servers.other)
    return await send(servers, route, run)


@answers(f"{MESSAGES} 422 agent_required")
async def without_an_agent(servers: Servers, route: Route) -> httpx2.Response:
    thread = await servers.ann.post("/v1/threads", {}, 201)
    return await send(servers, route, {"id": UNKNOWN, "thread_id": thread["id"]})


# --- existing runs --------------------------------------------------------------------------------


async def resume(
    servers: Servers, route: Route, run: dict[str, Any], content: Any = "more"
) -> httpx2.Response:
    return await send(servers, route, run, content, mode="resume_open_run")


@answers(f"{INPUTS} 409 run_finished")
async def for_a_finished_run(servers: Servers, route: Route) -> httpx2.Response:
    return await send(servers, route, await servers.done(), mode="steer")


@to_both("409 not_steerable")
async def for_a_run_that_is_being_cancelled(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting()
    await servers.execute("UPDATE runs SET cancel_requested_at = now() WHERE id = $1", run["id"])
    return await resume(servers, route, run)


@answers(f"{INPUTS} 409 run_not_waiting")
async def for_a_queued_run(servers: Servers, route: Route) -> httpx2.Response:
    return await resume(servers, route, await servers.queued())


@answers(f"{MESSAGES} 409 run_not_waiting")
async def on_an_idle_thread(servers: Servers, route: Route) -> httpx2.Response:
    return await resume(servers, route, await servers.done())


@to_both("409 decisions_needed")
async def for_a_run_that_needs_a_decision(servers: Servers, route: Route) -> httpx2.Response:
    return await resume(servers, route, await servers.waiting())


@to_both("409 agent_version_unavailable")
async def for_a_run_of_an_unknown_agent_version(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.waiting("asker", ADJUST)
    await servers.execute("UPDATE runs SET agent_version = 'gone' WHERE id = $1", run["id"])
    await servers.ann.decide(run, "approve")
    async with servers.ann.events(f"/v1/runs/{run['id']}", follow=1) as stream:
        await stream.until("run_finish", 2)
    return await resume(servers, route, run)


@to_both("422 answer_without_text")
async def with_an_image_as_answer(servers: Servers, route: Route) -> httpx2.Response:
    return await resume(servers, route, await servers.waiting("asker", FILL_IN), [PICTURE])


@to_both("422 response_schema_violation")
async def with_text_instead_of_a_number(servers: Servers, route: Route) -> httpx2.Response:
    return await resume(servers, route, await servers.waiting("asker", FILL_IN), "many")
