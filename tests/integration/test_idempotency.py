"""Idempotency-Key over HTTP: one effect, one answer, and no key left locked by a failure."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from app.commands.idempotency import IdempotentCommand, begin_idempotent, store_response
from app.domain.errors import AlreadyAnswered, Conflict, Invalid
from app.domain.idempotency import IdempotencyKey, StoredResponse
from app.domain.principals import Principal, Scope
from app.storage import idempotency
from app.storage.postgres.database import Database
from tests.integration.conftest import AGENTS
from tests.support.keys import Holder, write_keys
from tests.support.problems import the_problem
from tests.support.replicas import ANN
from tests.support.servers import Server, serving
from tests.support.streams import EVENT_STREAM, Client, start_body

pytestmark = pytest.mark.anyio

APPROVAL = 'CALL risky {"what": "it"}'


@pytest.fixture(scope="module")
async def server(
    served_database: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    holders = {"ours": Holder("acme"), "hers": Holder("acme"), "theirs": Holder("globex")}
    keys = write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", holders)
    async with serving(
        served_database, agents=AGENTS, api_keys_file=keys, max_queue_per_thread=1
    ) as running:
        yield running


@pytest.fixture(scope="module")
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client("ours") as ours:
        yield ours


async def post(client: Client, path: str, body: Any, key: str, **headers: str) -> httpx2.Response:
    return await client.http.post(path, json=body, headers={"Idempotency-Key": key, **headers})


def assert_replayed(repeated: httpx2.Response, first: httpx2.Response) -> None:
    assert "idempotency-replayed" not in first.headers
    assert repeated.headers["idempotency-replayed"] == "true"
    assert (repeated.status_code, repeated.json()) == (first.status_code, first.json())
    assert repeated.headers.get("location") == first.headers.get("location")


async def runs_of(client: Client, thread_id: str) -> list[str]:
    page = await client.get(f"/v1/threads/{thread_id}/runs")
    return [run["id"] for run in page["items"]]


# --- starts ---------------------------------------------------------------------------------------


async def test_a_start_sent_twice_starts_one_run(client: Client) -> None:
    body = start_body("quick", "hello")
    first = await post(client, "/v1/runs", body, "start")
    assert first.status_code == 202
    run = first.json()
    assert (await client.settled(run["id"]))["outcome"] == "succeeded"
    repeated = await post(client, "/v1/runs", dict(reversed(body.items())), "start")
    assert_replayed(repeated, first)
    assert repeated.headers["location"] == f"/v1/runs/{run['id']}"
    assert await runs_of(client, run["thread_id"]) == [run["id"]]


async def test_a_streamed_start_sent_twice_gets_the_same_stream_twice(client: Client) -> None:
    streams = []
    for _ in range(2):
        response = await post(
            client, "/v1/runs", start_body("quick", "hello"), "stream", **EVENT_STREAM
        )
        assert response.status_code == 200
        streams.append([event async for event in _events(response)])
    assert streams[0] == streams[1]
    assert streams[0][-1]["event_type"] == "run_finish"
    assert response.headers["idempotency-replayed"] == "true"
    assert response.headers["content-location"] == f"/v1/runs/{streams[0][0]['run_id']}"


async def _events(response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    for line in response.text.splitlines():
        if line.startswith("data:"):
            yield json.loads(line.removeprefix("data:"))


async def test_a_repeated_start_may_wait_for_the_run(client: Client) -> None:
    body = start_body("talker", "one two three")
    first = await post(client, "/v1/runs", body, "wait")
    repeated = await post(client, "/v1/runs", body, "wait", Prefer="wait=20")
    assert (repeated.status_code, repeated.json()["status"]) == (200, "done")
    assert repeated.json()["id"] == first.json()["id"]
    assert repeated.headers["idempotency-replayed"] == "true"


async def test_a_key_is_looked_up_before_any_limit_is_checked(client: Client) -> None:
    """The thread's queue is full by now, and the repeated request still gets its answer."""
    waiting = await client.start("quick", APPROVAL)
    body = start_body("quick", "hello", thread_id=waiting["thread_id"])
    first = await post(client, "/v1/runs", body, "full")
    assert first.json()["status"] == "created"
    the_problem(await post(client, "/v1/runs", body, "fuller"), 429, "queue_full")
    assert_replayed(await post(client, "/v1/runs", body, "full"), first)


async def test_a_refused_request_stores_no_key(client: Client) -> None:
    waiting = await client.start("quick", APPROVAL)
    body = start_body("quick", "hello", thread_id=waiting["thread_id"], on_active="reject")
    the_problem(await post(client, "/v1/runs", body, "again"), 409, "thread_busy")
    path = f"/v1/runs/{waiting['id']}/cancel"
    settled = await client.http.post(path, params={"wait": 20})
    assert settled.status_code == 200, settled.text
    accepted = await post(client, "/v1/runs", body, "again")
    assert accepted.status_code == 202, accepted.text


# --- decisions and cancels ------------------------------------------------------------------------


async def test_a_decision_sent_twice_gets_the_same_answer(client: Client) -> None:
    started = await client.start("quick", APPROVAL)
    [ticket] = (await client.settled(started["id"]))["waiting"]["tickets"]
    path = f"/v1/runs/{started['id']}/decisions"
    body = {"decisions": [{"ticket_id": ticket["id"], "action": "approve"}]}
    first = await post(client, path, body, "decide")
    assert first.json()["results"][0]["status"] == "accepted"
    await client.settled(started["id"])
    assert_replayed(await post(client, path, body, "decide"), first)


async def test_a_cancel_sent_twice_gets_the_same_answer(client: Client) -> None:
    started = await client.start("quick", APPROVAL)
    await client.settled(started["id"])
    path = f"/v1/runs/{started['id']}/cancel"
    first = await post(client, path, {"reason": "no"}, "cancel")
    assert (first.status_code, first.json()["outcome"]) == (200, "cancelled")
    assert_replayed(await post(client, path, {"reason": "no"}, "cancel"), first)


async def test_a_repeated_cancel_may_wait_for_its_settling(client: Client) -> None:
    started = await client.start("talker", "word " * 60)
    path = f"/v1/runs/{started['id']}/cancel"
    first = await post(client, path, {}, "wait for it")
    assert first.status_code == 202
    repeated = await post(client, f"{path}?wait=20", {}, "wait for it")
    assert (repeated.status_code, repeated.json()["outcome"]) == (200, "cancelled")


async def test_a_pause_and_a_resume_sent_twice_get_the_same_answer(client: Client) -> None:
    started = await client.start("quick", APPROVAL)
    await client.settled(started["id"])
    path = f"/v1/runs/{started['id']}"
    paused = await post(client, f"{path}/pause", {"reason": "look"}, "pause")
    assert (paused.status_code, paused.json()["pause"]["reason"]) == (200, "look")
    resumed = await post(client, f"{path}/resume", None, "resume")
    assert (resumed.status_code, resumed.json()["pause"]) == (200, None)
    assert_replayed(await post(client, f"{path}/pause", {"reason": "look"}, "pause"), paused)
    assert_replayed(await post(client, f"{path}/resume", None, "resume"), resumed)
    assert (await client.run(started["id"]))["pause"] is None


async def test_a_repeated_pause_may_wait_for_its_settling(client: Client) -> None:
    started = await client.start("talker", "word " * 60)
    path = f"/v1/runs/{started['id']}/pause"
    first = await post(client, path, {}, "wait for the pause")
    assert (first.status_code, first.json()["status"]) == (202, "running")
    repeated = await post(client, f"{path}?wait=20", {}, "wait for the pause")
    assert repeated.status_code == 200
    assert repeated.json()["status"] == "done", "the run ended with its only step"


# --- what a key belongs to ------------------------------------------------------------------------


async def test_another_request_under_the_same_key_is_refused(client: Client) -> None:
    first = await post(client, "/v1/runs", start_body("quick", "hello"), "mine")
    other = await post(client, "/v1/runs", start_body("quick", "goodbye"), "mine")
    the_problem(other, 422, "idempotency_key_reused")
    one, two = [(await client.start("quick", APPROVAL))["id"] for _ in range(2)]
    await post(client, f"/v1/runs/{one}/cancel", {}, "mine")
    other = await post(client, f"/v1/runs/{two}/cancel", {}, "mine")
    the_problem(other, 422, "idempotency_key_reused")
    assert first.status_code == 202


async def test_keys_of_different_senders_are_separate(server: Server, client: Client) -> None:
    body = start_body("quick", "hello")
    started = {(await post(client, "/v1/runs", body, "shared")).json()["id"]}
    for name in ("hers", "theirs"):
        async with server.client(name) as other:
            response = await post(other, "/v1/runs", body, "shared")
            assert "idempotency-replayed" not in response.headers
            started.add(response.json()["id"])
    assert len(started) == 3


@pytest.mark.parametrize("key", ["", "x" * 256, "caf\xe9"])
async def test_an_invalid_key_is_refused(client: Client, key: str) -> None:
    response = await client.http.post(
        "/v1/runs",
        json=start_body("quick", "hello"),
        headers=[(b"Idempotency-Key", key.encode("latin-1"))],
    )
    the_problem(response, 422, "invalid_request")


# --- races and crashes ----------------------------------------------------------------------------

KEY = IdempotencyKey(route="POST /v1/runs", key="k", fingerprint="f")


def once(fingerprint: str = "f") -> IdempotentCommand[str]:
    key = IdempotencyKey(route=KEY.route, key=KEY.key, fingerprint=fingerprint)
    return IdempotentCommand(key, lambda emitted: StoredResponse(200, emitted))


async def test_a_key_of_a_request_in_progress_is_refused_without_waiting(
    database: Database,
) -> None:
    async with database.transaction() as first:
        await begin_idempotent(first, ANN, once())
        async with database.transaction() as second:
            with pytest.raises(Conflict, match="idempotency_key_in_flight"):
                await begin_idempotent(second, ANN, once())
            other = Principal(ANN.tenant, "another sender", frozenset(Scope))
            await begin_idempotent(second, other, once())
        await store_response(first, ANN, once(), "yes")
    async with database.transaction() as third:
        with pytest.raises(AlreadyAnswered) as repeated:
            await begin_idempotent(third, ANN, once())
        with pytest.raises(Invalid, match="idempotency_key_reused"):
            await begin_idempotent(third, ANN, once("another"))
    assert repeated.value.answer == StoredResponse(200, "yes")


async def test_a_process_that_dies_leaves_no_key(database: Database) -> None:
    """Postgres rolls back the transaction of a lost client and releases its locks."""

    async def die() -> None:
        async with database.transaction() as lost:
            await begin_idempotent(lost, ANN, once())
            await store_response(lost, ANN, once(), "never")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await die()
    async with database.transaction() as next_one:
        await begin_idempotent(next_one, ANN, once("another"))


async def test_stored_answers_are_deleted_after_their_retention(database: Database) -> None:
    async with database.transaction() as connection:
        await begin_idempotent(connection, ANN, once())
        await store_response(connection, ANN, once(), "yes")
    async with database.transaction() as connection:
        await idempotency.delete_old(connection, 60.0, 100)
        assert await idempotency.find(connection, ANN.tenant, ANN.subject, KEY) is not None
    async with database.transaction() as connection:
        await idempotency.delete_old(connection, 0.0, 100)
        assert await idempotency.find(connection, ANN.tenant, ANN.subject, KEY) is None
