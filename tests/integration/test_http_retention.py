"""Retention as clients meet it: a replay that is shorter and says the same, and cursors that went stale."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text

from app.clock import new_id
from app.storage.postgres.database import Database
from app.storage.threads import threads
from tests.integration.conftest import AGENTS
from tests.support.conditions import eventually
from tests.support.invariants import broken_invariants
from tests.support.old_runs import let_it_have_ended_long_ago
from tests.support.problems import the_problem
from tests.support.servers import Server, serving
from tests.support.stored_runs import TENANT
from tests.support.streams import EVENT_STREAM, Client

pytestmark = pytest.mark.anyio

WORDS = "one two three four five six seven eight nine ten " * 4


@pytest.fixture(scope="module")
async def server(served_database: str) -> AsyncIterator[Server]:
    settings = {"retention_interval": 0.2, "delta_retention": 60}
    async with serving(served_database, agents=AGENTS, **settings) as running:
        yield running


async def merged_log(client: Client, path: str, shorter_than: int) -> list[dict[str, Any]]:
    async def look() -> list[dict[str, Any]] | None:
        log = await client.log(path)
        return log if len(log) < shorter_than else None

    return await eventually(look)


def said(log: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in log if event["event_type"] == "text_delta")


async def test_an_old_run_is_replayed_in_fewer_events_and_stale_cursors_are_told(
    client: Client, served_database: str
) -> None:
    run = await client.settled((await client.start("talker", WORDS))["run_id"])
    path, thread = f"/v1/runs/{run['run_id']}", f"/v1/threads/{run['thread_id']}"
    before = await client.log(path)
    deltas = [event["seq"] for event in before if event["event_type"] == "text_delta"]
    assert len(deltas) > 2
    assert (await client.get(f"{thread}/storage"))["saved"] == {"rows": 0, "bytes": 0}

    await let_it_have_ended_long_ago(served_database, run["run_id"])
    after = await merged_log(client, path, len(before))
    assert said(after) == said(before)
    assert [event["seq"] for event in after if event["event_type"] == "text_delta"] == deltas[-1:]
    assert [event for event in after if event["event_type"] != "text_delta"] == [
        event for event in before if event["event_type"] != "text_delta"
    ]
    saved = (await client.get(f"{thread}/storage"))["saved"]
    assert saved["rows"] == len(deltas) - 1
    assert saved["bytes"] > 50 * saved["rows"]

    for scope in (path, thread):
        stale = {**EVENT_STREAM, "Last-Event-ID": str(deltas[0])}
        response = await client.http.get(f"{scope}/events", headers=stale)
        problem = the_problem(response, 410, "cursor_expired")
        assert problem["oldest_available"] == deltas[-1]
        assert problem["last_event_id"] == before[-1]["seq"]
        assert (await client.http.get(problem["snapshot"])).status_code == 200
    seen = {**EVENT_STREAM, "Last-Event-ID": str(before[-1]["seq"])}
    assert (await client.http.get(f"{path}/events", headers=seen)).status_code == 204
    assert await broken_invariants(served_database) == {}
    async with client.events(path, last_id=str(deltas[-1])) as stream:
        assert await stream.rest() == [event for event in before if event["seq"] > deltas[-1]]


async def test_a_deleted_thread_takes_its_rules_along(client: Client) -> None:
    thread_id = new_id()
    for scope in ("thread", "run", "agent"):
        body = {"thread_id": thread_id}
        started = await client.start("quick", f'CALL risky {{"what": "{scope}"}}', **body)
        waiting = await client.settled(started["run_id"])
        remember = {"scope": scope, "match": "arguments"}
        await client.decide(waiting, "approve", remember=remember)
        await client.settled(started["run_id"])
    scopes = {rule["scope"] for rule in (await client.get("/v1/rules"))["items"]}
    assert scopes == {"thread", "run", "agent"}
    assert (await client.http.delete(f"/v1/threads/{thread_id}")).status_code == 204
    [left] = (await client.get("/v1/rules"))["items"]
    assert left["scope"] == "agent"


async def test_threads_are_found_by_their_metadata_without_reading_all(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(text(_MANY_THREADS), {"tenant": TENANT})
        await connection.execute(text("ANALYZE threads"))
    async with database.reading() as connection:
        found = await threads.page(
            connection,
            TENANT,
            resource_id=None,
            parent_thread_id=None,
            metadata={"case": 777},
            before=None,
            limit=50,
        )
        await connection.execute(text("SELECT pg_stat_force_next_flush()"))
        used = await connection.scalar(text(_USED))
    assert [thread.metadata for thread in found] == [{"case": 777}]
    assert used == 1


_MANY_THREADS = """
INSERT INTO threads (tenant, id, metadata)
SELECT :tenant, gen_random_uuid(),
    CASE WHEN n % 2 = 0 THEN '{}'::jsonb ELSE jsonb_build_object('case', n) END
FROM generate_series(1, 20000) n
"""
_USED = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'threads_metadata'"
