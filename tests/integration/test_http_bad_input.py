"""Bad input over HTTP: each kind gets its documented problem, and changes nothing."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.bad_requests import (
    BAD_REQUESTS,
    ZERO,
    BadRequest,
    SentIds,
    decision,
    message_body,
    start,
)
from tests.integration.conftest import AGENTS
from tests.support.conditions import eventually
from tests.support.keys import Holder, write_keys
from tests.support.problems import the_problem
from tests.support.routes import UNKNOWN, routes_of
from tests.support.rows import all_rows, nothing_is_queued
from tests.support.servers import Server, serving
from tests.support.streams import EVENT_STREAM, Client

pytestmark = pytest.mark.anyio

APPROVAL = 'CALL risky {"what": "it"}'


@pytest.fixture(scope="module")
async def server(
    served_database: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    ours = Holder("acme", (*Holder("acme").scopes, "admin"))
    holders = {"ours": ours, "theirs": Holder("globex")}
    keys = write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", holders)
    async with serving(
        served_database, agents=AGENTS, api_keys_file=keys, max_queue_per_thread=1
    ) as running:
        yield running


@pytest.fixture(scope="module")
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client("ours") as ours:
        yield ours


@pytest.fixture(scope="module")
async def world(server: Server, served_database: str) -> SentIds:
    async with server.client("ours") as ours, server.client("theirs") as theirs:
        waiting, done, void, foreign = (
            await _suspended(ours),
            await _suspended(ours),
            await _suspended(ours),
            await _suspended(theirs),
        )
        await ours.decide(done, "approve")
        await ours.post(f"/v1/runs/{void['id']}/cancel")
        await ours.settled(done["id"])
        for text in ("one", "two"):
            run = await ours.start("quick", text, thread_id=done["thread_id"])
            await ours.settled(run["id"])
    await eventually(partial(nothing_is_queued, served_database))
    return SentIds(
        thread=done["thread_id"],
        waiting_thread=waiting["thread_id"],
        waiting=waiting["id"],
        ticket=_ticket(waiting),
        done=done["id"],
        decided=_ticket(done),
        void_run=void["id"],
        void=_ticket(void),
        foreign_thread=foreign["thread_id"],
        foreign_run=foreign["id"],
        foreign_ticket=_ticket(foreign),
    )


async def _suspended(client: Client) -> dict[str, Any]:
    run = await client.start("quick", APPROVAL)
    waiting = await client.settled(run["id"])
    assert waiting["status"] == "waiting"
    return waiting


def _ticket(run: Mapping[str, Any]) -> str:
    return str(run["waiting"]["tickets"][0]["id"])


AUDITED_CODES = {"ticket_already_decided", "ticket_void", "args_digest_mismatch"}
"""Refused decisions with these codes are stored for the audit."""


@pytest.mark.parametrize("bad", BAD_REQUESTS, ids=str)
async def test_bad_input_gets_its_problem_and_changes_nothing(
    bad: BadRequest, client: Client, world: SentIds, served_database: str
) -> None:
    before = dict(await all_rows(served_database))
    response = await bad.send(client, world)
    status, code = bad.refusal.split()
    the_problem(response, int(status), code)
    after = dict(await all_rows(served_database))
    if code in AUDITED_CODES:
        assert len(set(after.pop("decisions")) - set(before.pop("decisions"))) <= 1
    assert after == before


async def test_a_refused_query_parameter_is_answered_with_the_known_ones(client: Client) -> None:
    document = await client.get("/openapi.json")
    for route in await routes_of(client):
        ids = dict.fromkeys(route.ids, UNKNOWN)
        response = await route.ask(client, ids, params={"witch": "it", "limit": "2", "wat": ""})
        problem = the_problem(response, 422, "invalid_request")
        unknown = [error["at"] for error in problem["errors"]]
        assert unknown[0] == "query.witch"
        assert unknown[-1] == "query.wat"
        _, _, taken = problem["detail"].partition("This operation takes ")
        operation = document["paths"][route.path][route.method.lower()]
        declared = [one for one in operation.get("parameters", ()) if one["in"] == "query"]
        free = {"metadata.KEY"} if "metadata.KEY" in operation.get("description", "") else set()
        names = {one["name"] for one in declared} | free or {"none"}
        assert set(taken.removesuffix(".").split(", ")) == names


@pytest.mark.parametrize("path", ["/health", "/health/live", "/metrics"])
async def test_health_routes_accept_unknown_query_parameters(client: Client, path: str) -> None:
    assert (await client.http.get(path, params={"at": 1})).status_code == 200


@pytest.mark.parametrize("headers", [{}, EVENT_STREAM], ids=["record", "stream"])
async def test_a_start_is_accepted_once_under_a_run_id(
    client: Client, world: SentIds, served_database: str, headers: dict[str, str]
) -> None:
    body = start(run_id=str(uuid4()), thread_id=str(uuid4()), metadata={"a": 1, "b": 2})
    run = await client.post("/v1/runs", body, 202)
    done = await client.settled(run["id"])
    before = await all_rows(served_database)
    again = {**dict(reversed(body.items())), "metadata": {"b": 2, "a": 1}}
    repeated = await client.http.post("/v1/runs", json=again, headers=headers)
    if headers:
        assert repeated.headers["content-location"] == f"/v1/runs/{run['id']}"
    else:
        assert repeated.status_code == 202
        assert repeated.json() == done
    other = await client.http.post("/v1/runs", json={**body, "metadata": {}}, headers=headers)
    assert the_problem(other, 409, "run_id_conflict")["run_id"] == run["id"]
    assert await all_rows(served_database) == before


@pytest.mark.parametrize("kinds", [1, 2])
async def test_concurrent_starts_with_one_run_id_create_one_run(
    client: Client, world: SentIds, kinds: int
) -> None:
    id = {"run_id": str(uuid4()), "thread_id": str(uuid4())}
    bodies = [start(**id, metadata={"kind": n % kinds}) for n in range(8)]
    answers = await asyncio.gather(*(client.http.post("/v1/runs", json=body) for body in bodies))
    won = [answer for answer in answers if answer.status_code == 202]
    assert {answer.json()["metadata"]["kind"] for answer in won} <= {0, 1}
    assert len(won) == 8 // kinds
    for answer in answers:
        if answer not in won:
            the_problem(answer, 409, "run_id_conflict")
    done = await client.settled(id["run_id"])
    log = await client.get(f"/v1/threads/{id['thread_id']}/messages")
    assert (done["outcome"], len(log["items"])) == ("succeeded", 2)


async def test_a_full_queue_refuses_further_runs(
    client: Client, world: SentIds, served_database: str
) -> None:
    body = start(thread_id=world.waiting_thread)
    queued = await client.post("/v1/runs", body, 202)
    assert queued["status"] == "created"
    before = await all_rows(served_database)
    refused = await client.http.post("/v1/runs", json=body)
    the_problem(refused, 429, "queue_full")
    assert refused.headers["retry-after"] == "5"
    assert await all_rows(served_database) == before
    cancelled = await client.post(f"/v1/runs/{queued['id']}/cancel")
    assert cancelled["outcome"] == "cancelled"


async def test_a_decided_ticket_names_its_decision_and_recognises_a_repetition(
    client: Client, world: SentIds, served_database: str
) -> None:
    # A follow-up of the run that was rolled back may still be queued.
    await eventually(partial(nothing_is_queued, served_database))
    before = await all_rows(served_database)
    path = f"/v1/runs/{world.done}/decisions"
    late = await client.http.post(path, json=decision(world.decided, "reject"))
    winner = the_problem(late, 409, "ticket_already_decided")["winner"]
    assert (winner["action"], winner["decided_by"]) == ("approve", "ours")
    repeated = await client.post(path, decision(world.decided, "approve"))
    assert repeated["results"][0]["status"] == "duplicate"
    assert repeated["results"][0]["decision_id"] == winner["id"]
    assert await all_rows(served_database) == before


@pytest.mark.parametrize("kind", ["runs", "threads"])
async def test_a_cursor_beyond_the_head_gets_the_oldest_cursor_and_the_snapshot(
    client: Client, world: SentIds, kind: str
) -> None:
    id = world.done if kind == "runs" else world.thread
    headers = {**EVENT_STREAM, "Last-Event-ID": "1000"}
    response = await client.http.get(f"/v1/{kind}/{id}/events", headers=headers)
    problem = the_problem(response, 410, "cursor_expired")
    assert problem["oldest_available"] == 1
    assert (await client.http.get(problem["snapshot"])).status_code == 200


async def test_a_cursor_is_accepted_for_its_own_query_only(client: Client, world: SentIds) -> None:
    messages = f"/v1/threads/{world.thread}/messages"
    queries = [
        ("/v1/runs", {}),
        ("/v1/runs", {"agent_id": "quick"}),
        ("/v1/runs", {"thread_id": world.thread}),
        ("/v1/runs", {"metadata.k": ""}),
        ("/v1/threads", {}),
        ("/v1/tickets", {}),
        (messages, {}),
        (messages, {"order": "desc"}),
    ]
    cursors = [(await client.get(path, limit=1, **query))["next_cursor"] for path, query in queries]
    for own, (path, query) in enumerate(queries):
        for index, cursor in enumerate(cursors):
            if cursor is None:
                continue
            answer = await client.http.get(path, params={**query, "limit": 1, "cursor": cursor})
            if index == own:
                assert answer.status_code == 200
            else:
                the_problem(answer, 400, "cursor_mismatch")


@pytest.mark.parametrize("request_line", ["POST /v1/stream-tokens", "PATCH {}", "DELETE {}"])
async def test_an_idempotency_key_is_refused_on_routes_that_do_not_support_it(
    client: Client, world: SentIds, served_database: str, request_line: str
) -> None:
    before = await all_rows(served_database)
    method, path = request_line.format(f"/v1/threads/{world.thread}").split()
    response = await client.http.request(
        method,
        path,
        json=None if method == "DELETE" else {},
        headers={"Idempotency-Key": "once"},
    )
    the_problem(response, 422, "idempotency_key_unsupported")
    assert await all_rows(served_database) == before


async def test_a_problem_names_the_field_as_the_client_sent_it(client: Client) -> None:
    body = {**message_body([{"type": "text", "text": ZERO}]), "metadata": 7}
    response = await client.http.post("/v1/runs", json=body)
    problem = the_problem(response, 422, "invalid_request")
    assert [error["at"] for error in problem["errors"]] == [
        "body.messages.0.content.parts.0.text.text",
        "body.metadata",
    ]
    assert "U+0000" in problem["detail"]


async def test_a_wrong_method_is_answered_with_the_allowed_ones(
    client: Client, world: SentIds
) -> None:
    response = await client.http.put(f"/v1/threads/{world.thread}", json={})
    assert response.headers["allow"] == "DELETE, GET, PATCH"
