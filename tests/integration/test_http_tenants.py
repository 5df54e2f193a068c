"""Tenants over HTTP don't see each other, and a stream token shows one stream only."""

import base64
import hashlib
import json
import tomllib
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from app.clock import SystemClock
from app.domain.ids import Tenant
from app.domain.principals import Principal
from app.http.stream_grants import StreamTokenSigner
from tests.integration.conftest import AGENTS
from tests.support.conditions import eventually
from tests.support.keys import Holder, write_keys
from tests.support.problems import the_problem
from tests.support.routes import UNKNOWN, routes_of
from tests.support.rows import all_rows, nothing_is_queued
from tests.support.servers import Server, serving
from tests.support.streams import EVENT_STREAM, Client, start_body

pytestmark = pytest.mark.anyio

APPROVAL = 'CALL risky {"what": "it"}'
ANN = Principal(Tenant("acme"), "ann", frozenset())
SECRET = "a secret of the test's own"
SIGNER = StreamTokenSigner([SECRET.encode()])


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    holders = {"ann": Holder("acme"), "bob": Holder("globex")}
    return write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", holders)


@pytest.fixture(scope="module")
async def server(served_database: str, keys: Path) -> AsyncIterator[Server]:
    async with serving(
        served_database,
        agents=AGENTS,
        api_keys_file=keys,
        stream_token_ttl=60,
        stream_token_secret=SECRET,
    ) as running:
        yield running


@pytest.fixture(scope="module")
async def ann(server: Server) -> AsyncIterator[Client]:
    async with server.client("ann") as client:
        yield client


@pytest.fixture(scope="module")
async def bob(server: Server) -> AsyncIterator[Client]:
    async with server.client("bob") as client:
        yield client


@pytest.fixture(scope="module")
async def waiting(server: Server, served_database: str) -> dict[str, Any]:
    """A run of Ann's that waits for an approval."""
    async with server.client("ann") as client:
        run = await client.settled((await client.start("quick", APPROVAL))["id"])
    await eventually(lambda: nothing_is_queued(served_database))
    return run


# --- tenants --------------------------------------------------------------------------------------


async def test_a_foreign_id_is_answered_as_unknown_on_every_route(
    ann: Client, bob: Client, waiting: dict[str, Any], served_database: str
) -> None:
    more = {"messages": [{"role": "user", "content": "more"}], "mode": "steer"}
    queued = await ann.post(f"/v1/runs/{waiting['id']}/inputs", more, 202)
    foreign = {
        "run_id": waiting["id"],
        "thread_id": waiting["thread_id"],
        "ticket_id": waiting["waiting"]["tickets"][0]["id"],
        "input_id": queued["input_ids"][0],
    }
    before = await all_rows(served_database)
    asked = [route for route in await routes_of(bob) if foreign.keys() & set(route.ids)]
    assert len(asked) >= 12
    for route in asked:
        for headers in ({}, EVENT_STREAM):
            foreign_answer = await route.ask(bob, foreign, headers=headers)
            unknown_answer = await route.ask(bob, dict.fromkeys(foreign, UNKNOWN), headers=headers)
            assert foreign_answer.status_code == unknown_answer.status_code == 404, route
            assert problem_without_ids(foreign_answer, foreign) == problem_without_ids(
                unknown_answer, foreign
            )
    assert await all_rows(served_database) == before


def problem_without_ids(response: httpx2.Response, ids: Mapping[str, str]) -> dict[str, Any]:
    """The problem, without the ids that the caller has sent."""
    text = response.text
    for id in (*ids.values(), UNKNOWN):
        text = text.replace(id, "ID")
    return {**json.loads(text), "trace_id": "", "instance": response.status_code}


async def test_foreign_ids_in_a_body_are_answered_as_unknown(
    bob: Client, waiting: dict[str, Any], served_database: str
) -> None:
    before = await all_rows(served_database)
    thread, run = waiting["thread_id"], waiting["id"]
    for path, body in (
        ("/v1/stream-tokens", {"run_id": run}),
        ("/v1/stream-tokens", {"thread_id": thread}),
        ("/v1/threads", {"parent_thread_id": thread}),
        (
            "/v1/runs",
            start_body("quick", "hello", thread_id=thread, if_thread_missing="reject"),
        ),
    ):
        response = await bob.http.post(path, json=body)
        the_problem(response, 404, f"{'run' if 'run_id' in body else 'thread'}_not_found")
    assert await all_rows(served_database) == before


async def test_lists_show_only_the_tenants_own_items(
    ann: Client, bob: Client, server: Server
) -> None:
    his = await bob.settled((await bob.start("quick", APPROVAL))["id"])
    for path, own in (("/v1/runs", his["id"]), ("/v1/threads", his["thread_id"])):
        hers = {item["id"] for item in (await ann.get(path, limit=200))["items"]}
        assert own not in hers
        assert hers.isdisjoint(item["id"] for item in (await bob.get(path, limit=200))["items"])
    tickets = (await bob.get("/v1/tickets"))["items"]
    assert {ticket["run_id"] for ticket in tickets} == {his["id"]}
    hers = (await ann.get("/v1/runs", thread_id=his["thread_id"]))["items"]
    assert hers == []


async def test_two_tenants_may_choose_the_same_ids(ann: Client, bob: Client) -> None:
    ids = {"run_id": str(uuid4()), "thread_id": str(uuid4())}
    hers = await ann.start("quick", "mine", **ids)
    his = await bob.start("quick", "and mine", **ids)
    for client, run, prompt in ((ann, hers, "mine"), (bob, his, "and mine")):
        done = await client.settled(run["id"])
        assert (done["id"], done["thread_id"]) == (ids["run_id"], ids["thread_id"])
        assert done["final_output"].startswith(f"You said: {prompt}")
        log = await client.get(f"/v1/threads/{ids['thread_id']}/messages")
        assert len(log["items"]) == 2
        events = await client.log(f"/v1/threads/{ids['thread_id']}")
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


# --- stream tokens --------------------------------------------------------------------------------


async def token_for(client: Client, **what: str) -> dict[str, Any]:
    return await client.post("/v1/stream-tokens", what, 201)


async def test_a_stream_token_reads_its_stream_and_snapshot_and_nothing_else(
    ann: Client, server: Server, waiting: dict[str, Any]
) -> None:
    run, thread = f"/v1/runs/{waiting['id']}", f"/v1/threads/{waiting['thread_id']}"
    other = await ann.settled((await ann.start("quick", "another"))["id"])
    of_run = (await token_for(ann, run_id=waiting["id"]))["token"]
    of_thread = (await token_for(ann, thread_id=waiting["thread_id"]))["token"]
    async with server.client() as browser:
        async with browser.events(run, stream_token=of_run) as stream:
            assert (await stream.rest())[0]["run_id"] == waiting["id"]
        snapshot = await browser.http.get(f"{run}/snapshot", params={"stream_token": of_run})
        assert snapshot.json()["run"]["id"] == waiting["id"]
        async with browser.events(thread, stream_token=of_thread) as stream:
            await stream.until("run_finish")
        for token, path in (
            (of_thread, f"{run}/events"),
            (of_run, f"{thread}/events"),
            (of_run, f"/v1/runs/{other['id']}/events"),
            (of_run, f"/v1/runs/{other['id']}/snapshot"),
            (of_thread, f"{run}/snapshot"),
            (of_run, f"/v1/runs/{UNKNOWN}/events"),
        ):
            refused = await browser.http.get(path, params={"stream_token": token})
            the_problem(refused, 403, "stream_token_elsewhere")
        params = {"stream_token": of_run}
        for route in await routes_of(browser):
            if not route.path.endswith(("/events", "/snapshot")):
                ids = dict.fromkeys(route.ids, UNKNOWN) | {"run_id": waiting["id"]}
                the_problem(await route.ask(browser, ids, params=params), 401, "unauthenticated")


async def test_a_stream_token_expires_after_a_short_time(
    ann: Client, server: Server, waiting: dict[str, Any]
) -> None:
    before = SystemClock().now()
    response = await ann.http.post("/v1/stream-tokens", json={"run_id": waiting["id"]})
    made_at = parsedate_to_datetime(response.headers["date"])
    expires_at = datetime.fromisoformat(response.json()["expires_at"])
    rounding = timedelta(seconds=1)
    assert before - rounding <= expires_at - timedelta(seconds=60) <= SystemClock().now() + rounding
    late = SIGNER.sign(ANN, waiting["id"], None, made_at)
    accepted = SIGNER.sign(ANN, waiting["id"], None, expires_at)
    path = f"/v1/runs/{waiting['id']}/events"
    async with server.client() as browser:
        refused = await browser.http.get(path, params={"stream_token": late})
        the_problem(refused, 401, "stream_token_expired")
        assert (await browser.get(path, stream_token=accepted))["items"]


async def test_a_modified_stream_token_is_refused(
    ann: Client, server: Server, waiting: dict[str, Any]
) -> None:
    original = (await token_for(ann, run_id=waiting["id"]))["token"]
    body, _, signature = original.partition(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    longer = base64.urlsafe_b64encode(json.dumps({**claims, "exp": 9e9}).encode()).decode()
    forged = (f"{longer}.{signature}", f"{body}.", body, f"{body}.{'A' * 43}", "é.è", "", ".")
    async with server.client() as browser:
        for token in forged:
            path = f"/v1/runs/{waiting['id']}/events"
            response = await browser.http.get(path, params={"stream_token": token})
            the_problem(response, 401, "stream_token_invalid")


async def test_tokens_are_not_signed_with_anything_from_the_keys_file(
    served_database: str, keys: Path, waiting: dict[str, Any]
) -> None:
    file = keys.read_bytes()  # noqa: ASYNC240  a small file
    digests = sorted(key["sha256"] for key in tomllib.loads(file.decode())["keys"])
    path = f"/v1/runs/{waiting['id']}/events"
    expires_at = SystemClock().now() + timedelta(seconds=60)
    async with (
        serving(served_database, agents=AGENTS, api_keys_file=keys) as server,
        server.client() as browser,
    ):
        for secret in (
            hashlib.sha256("\n".join(digests).encode()).digest(),
            file,
            *map(bytes.fromhex, digests),
            *map(str.encode, digests),
        ):
            forged = StreamTokenSigner([secret]).sign(ANN, waiting["id"], None, expires_at)
            response = await browser.http.get(path, params={"stream_token": forged})
            the_problem(response, 401, "stream_token_invalid")


async def test_replicas_without_a_secret_in_their_settings_share_one(
    served_database: str, keys: Path, waiting: dict[str, Any]
) -> None:
    path = f"/v1/runs/{waiting['id']}/events"
    async with (
        serving(served_database, agents=AGENTS, api_keys_file=keys) as one,
        serving(served_database, agents=AGENTS, api_keys_file=keys) as other,
        one.client("ann") as ann,
        other.client() as browser,
    ):
        token = (await token_for(ann, run_id=waiting["id"]))["token"]
        assert (await browser.get(path, stream_token=token))["items"]


async def test_after_a_rotation_the_previous_secret_is_accepted_while_it_is_configured(
    ann: Client, served_database: str, keys: Path, waiting: dict[str, Any]
) -> None:
    token = (await token_for(ann, run_id=waiting["id"]))["token"]
    path = f"/v1/runs/{waiting['id']}/events"
    new = {"agents": AGENTS, "api_keys_file": keys, "stream_token_secret": "another secret of its"}
    async with serving(served_database, **new, stream_token_secret_previous=SECRET) as rotated:
        async with rotated.client() as browser:
            assert (await browser.get(path, stream_token=token))["items"]
        async with rotated.client("ann") as client:
            newer = (await token_for(client, run_id=waiting["id"]))["token"]
    async with serving(served_database, **new) as later, later.client() as browser:
        refused = await browser.http.get(path, params={"stream_token": token})
        the_problem(refused, 401, "stream_token_invalid")
        assert (await browser.get(path, stream_token=newer))["items"]
