"""Threads that clients name by a key of their own: a request needs no id, and tenants share no key."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.clock import new_id
from app.domain.ids import Tenant
from app.domain.threads.keys import thread_id_of_key
from tests.integration.conftest import AGENTS
from tests.support.keys import Holder, write_keys
from tests.support.servers import Server, serving
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
RISKY = 'CALL risky {"what": "it"}'


@pytest.fixture(scope="module")
async def server(
    served_database: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    holders = {"ann": Holder("acme"), "bob": Holder("globex")}
    keys = write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", holders)
    async with serving(served_database, agents=AGENTS, api_keys_file=keys) as running:
        yield running


@pytest.fixture(scope="module")
async def ann(server: Server) -> AsyncIterator[Client]:
    async with server.client("ann") as client:
        yield client


@pytest.fixture(scope="module")
async def bob(server: Server) -> AsyncIterator[Client]:
    async with server.client("bob") as client:
        yield client


@pytest.fixture
def key() -> str:
    return f"customer {new_id()}"


async def named(client: Client, key: str) -> list[Json]:
    found: Json = await client.get("/v1/threads", key=key)
    items: list[Json] = found["items"]
    return items


async def post(client: Client, path: str, body: Json, status: int, **headers: str) -> Json:
    response = await client.http.post(path, json=body, headers=headers)
    assert response.status_code == status, response.text
    answer: Json = response.json()
    return answer


async def test_runs_with_the_same_key_share_a_thread_that_shows_the_key(
    ann: Client, key: str
) -> None:
    first = await ann.start("quick", "hi", thread_key=key)
    second = await ann.start("quick", "again", thread_key=key)
    assert first["thread_id"] == second["thread_id"]
    for run in (first, second):
        await ann.ended(run["id"])
    thread = await ann.get(f"/v1/threads/{first['thread_id']}")
    assert thread["key"] == key
    assert await named(ann, key) == [thread]
    assert await named(ann, f"{key}.") == []
    runs = await ann.get("/v1/runs", thread_key=key)
    assert {run["id"] for run in runs["items"]} == {first["id"], second["id"]}
    assert {run["thread_key"] for run in (*runs["items"], first, second)} == {key}


async def test_a_thread_that_was_created_without_a_key_shows_none(ann: Client) -> None:
    run = await ann.start("quick", "hi")
    assert run["thread_key"] is None
    assert (await ann.get(f"/v1/threads/{run['thread_id']}"))["key"] is None
    assert (await ann.run(run["id"]))["thread_key"] is None


async def test_a_run_shows_the_key_of_its_thread_however_it_was_started(
    ann: Client, key: str
) -> None:
    first = await ann.start("quick", RISKY, thread_key=key)
    waiting = await ann.settled(first["id"])
    by_id = await ann.start("quick", "hi", thread_id=first["thread_id"])
    path = f"/v1/threads/{first['thread_id']}"
    message = {"messages": [{"role": "user", "content": "more"}], "mode": "queue"}
    sent = await ann.post(f"{path}/messages", message, 202)
    await ann.decide(waiting, "approve")
    await ann.ended(first["id"])
    for run_id in (first["id"], by_id["id"], sent["run_id"]):
        assert (await ann.ended(run_id))["thread_key"] == key
    after = await ann.start("quick", "hi", thread_id=first["thread_id"])
    assert after["thread_key"] == key, "started at once, by the thread's id"
    snapshot = await ann.get(f"/v1/runs/{first['id']}/snapshot")
    assert snapshot["run"]["thread_key"] == key


async def test_one_key_names_two_threads_in_two_tenants(ann: Client, bob: Client, key: str) -> None:
    hers = await ann.ended((await ann.start("quick", "hi", thread_key=key))["id"])
    assert await named(bob, key) == []
    assert (await bob.get("/v1/runs", thread_key=key))["items"] == []
    his = await bob.ended((await bob.start("quick", "hi", thread_key=key))["id"])
    assert hers["thread_id"] != his["thread_id"]
    for thread, other in ((hers, bob), (his, ann)):
        response = await other.http.get(f"/v1/threads/{thread['id']}")
        assert response.status_code == 404


async def test_the_id_of_another_tenants_key_reaches_no_row_of_that_tenant(
    ann: Client, bob: Client, key: str
) -> None:
    hers = await ann.start("quick", "hi", thread_key=key)
    assert hers["thread_id"] == thread_id_of_key(Tenant("acme"), key)
    his = await bob.ended((await bob.start("quick", "mine", thread_id=hers["thread_id"]))["id"])
    messages = await bob.get(f"/v1/threads/{his['thread_id']}/messages")
    assert messages["items"][0]["content"] == [{"type": "text", "text": "mine"}]
    assert (await bob.get(f"/v1/threads/{his['thread_id']}"))["key"] is None


async def test_a_thread_that_was_started_by_the_id_of_a_key_gets_the_key_with_the_next_start(
    ann: Client, key: str
) -> None:
    thread_id = thread_id_of_key(Tenant("acme"), key)
    await ann.ended((await ann.start("quick", "hi", thread_id=thread_id))["id"])
    assert await named(ann, key) == []
    await ann.ended((await ann.start("quick", "hi", thread_key=key))["id"])
    assert [thread["id"] for thread in await named(ann, key)] == [thread_id]


async def test_a_queued_start_names_its_thread_too(ann: Client, key: str) -> None:
    thread_id = thread_id_of_key(Tenant("acme"), key)
    first = await ann.start("quick", RISKY, thread_id=thread_id)
    queued = await ann.start("quick", "hi", thread_key=key)
    assert queued["thread_id"] == first["thread_id"]
    assert [thread["id"] for thread in await named(ann, key)] == [thread_id]
    await post(ann, f"/v1/threads/{thread_id}/cancel?wait=20", {}, 200)


async def test_a_start_that_is_stored_for_repetitions_creates_the_thread_with_its_key(
    ann: Client, key: str
) -> None:
    body = {**start_body("quick", "hi"), "thread_key": key}
    once = {"Idempotency-Key": new_id()}
    first = await post(ann, "/v1/runs", body, 202, **once)
    again = await post(ann, "/v1/runs", body, 202, **once)
    assert first == again
    [thread] = await named(ann, key)
    assert thread["id"] == first["thread_id"]
    other = await post(ann, "/v1/runs", {**body, "thread_key": f"{key}2"}, 422, **once)
    assert other["code"] == "idempotency_key_reused"


async def test_a_repeated_run_id_is_another_request_if_its_key_differs(
    ann: Client, key: str
) -> None:
    body = {**start_body("quick", "hi"), "run_id": new_id(), "thread_key": key}
    first = await post(ann, "/v1/runs", body, 202)
    again = await post(ann, "/v1/runs", body, 202)
    assert again["id"] == first["id"]
    refused = await post(ann, "/v1/runs", {**body, "thread_key": f"{key}2"}, 409)
    assert refused["code"] == "run_id_conflict"
    assert await named(ann, f"{key}2") == []


async def test_a_thread_is_created_once_by_a_key(ann: Client, key: str) -> None:
    made = await post(ann, "/v1/threads", {"thread_key": key, "title": "Refunds"}, 201)
    assert (made["key"], made["title"]) == (key, "Refunds")
    refused = await post(ann, "/v1/threads", {"thread_key": key}, 409)
    assert refused["code"] == "thread_exists"
    assert key in refused["detail"]
    assert refused["thread_id"] == made["id"]


async def test_a_child_thread_names_its_parent_by_the_parents_key(ann: Client, key: str) -> None:
    parent = await post(ann, "/v1/threads", {"thread_key": key}, 201)
    child = await post(ann, "/v1/threads", {"parent_thread_key": key}, 201)
    assert child["parent_thread_id"] == parent["id"]


async def test_a_fork_has_no_key_but_one_of_its_own(ann: Client, key: str) -> None:
    run = await ann.ended((await ann.start("quick", "hi", thread_key=key))["id"])
    path = f"/v1/threads/{run['thread_id']}/fork"
    assert (await post(ann, path, {}, 201))["key"] is None
    assert (await post(ann, path, {"thread_key": f"{key} b"}, 201))["key"] == f"{key} b"
    taken = await post(ann, path, {"thread_key": key}, 409)
    assert taken["code"] == "thread_exists"


async def test_the_key_of_a_deleted_thread_names_a_new_one(ann: Client, key: str) -> None:
    first = await ann.ended((await ann.start("quick", "hi", thread_key=key))["id"])
    deleted = await ann.http.delete(f"/v1/threads/{first['thread_id']}")
    assert deleted.status_code == 204
    assert await named(ann, key) == []
    again = await ann.ended((await ann.start("quick", "hi", thread_key=key))["id"])
    log = await ann.get(f"/v1/threads/{again['thread_id']}/messages")
    assert len(log["items"]) == 2


async def test_a_start_that_may_create_no_thread_is_refused_with_the_key(
    ann: Client, key: str
) -> None:
    body = {**start_body("quick", "hi"), "thread_key": key, "if_thread_missing": "reject"}
    refused = await post(ann, "/v1/runs", body, 404)
    assert refused["code"] == "thread_not_found"
    assert key in refused["detail"]
    assert await named(ann, key) == []


async def test_a_stream_token_opens_the_stream_of_a_thread_by_its_key(
    ann: Client, key: str
) -> None:
    run = await ann.ended((await ann.start("quick", "hi", thread_key=key))["id"])
    token = (await post(ann, "/v1/stream-tokens", {"thread_key": key}, 201))["token"]
    response = await ann.http.get(
        f"/v1/threads/{run['thread_id']}/events",
        params={"stream_token": token},
        headers={"Authorization": ""},
    )
    assert response.status_code == 200
    await post(ann, "/v1/stream-tokens", {"thread_key": f"{key}2"}, 404)


async def test_tickets_are_listed_by_the_key_or_the_id_of_their_thread(
    ann: Client, bob: Client, key: str
) -> None:
    run = await ann.start("quick", RISKY, thread_key=key)
    await ann.settled(run["id"])
    for thread in ({"thread_key": key}, {"thread_id": run["thread_id"]}):
        found = (await ann.get("/v1/tickets", **thread))["items"]
        assert [ticket["run_id"] for ticket in found] == [run["id"]]
        assert (await bob.get("/v1/tickets", **thread))["items"] == []


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/threads"])
async def test_an_id_and_a_key_together_are_refused(ann: Client, key: str, path: str) -> None:
    body = {"thread_id": new_id(), "thread_key": key}
    start = start_body("quick", "hi") if path == "/v1/runs" else {}
    refused = await post(ann, path, {**start, **body}, 422)
    assert "send `thread_id` or `thread_key`, not both" in refused["detail"]


async def test_filters_by_an_id_and_a_key_together_are_refused(ann: Client, key: str) -> None:
    for path in ("/v1/runs", "/v1/tickets"):
        response = await ann.http.get(path, params={"thread_id": new_id(), "thread_key": key})
        assert response.status_code == 422
        assert "not both" in response.json()["detail"]


@pytest.mark.parametrize("bad", ["", "a" * 201, "a\0b", "a\ud800b", 17, ["a"]], ids=repr)
async def test_a_key_is_text_of_1_to_200_characters_that_can_be_stored(
    ann: Client, bad: object
) -> None:
    body = {**start_body("quick", "hi"), "thread_key": bad}
    refused = await refused_start(ann, body)
    assert refused["code"] == "invalid_request"
    assert "thread_key" in refused["detail"]


async def refused_start(client: Client, body: Json) -> Json:
    """The refusal of a body whose half surrogates are sent as escapes."""
    response = await client.http.post(
        "/v1/runs",
        content=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    assert response.status_code == 422, response.text
    answer: Json = response.json()
    return answer


@pytest.mark.parametrize("good", ["a", "é" * 200, "a/b?c=d#e", " x ", "🦕\u2028\n'; --"], ids=ascii)
async def test_any_other_text_is_a_key(ann: Client, good: str) -> None:
    run = await ann.start("quick", "hi", thread_key=good)
    [thread] = await named(ann, good)
    assert (thread["id"], thread["key"]) == (run["thread_id"], good)


def test_the_id_of_a_key_never_changes() -> None:
    """Threads in databases are found by this rule."""
    assert (
        thread_id_of_key(Tenant("default"), "customer-17") == "0fb827e0-81bf-5e3e-b5df-a4988de2e3be"
    )
