"""Retention over HTTP: a shorter replay with the same text, and refused stale cursors."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text

from app.clock import new_id
from app.domain.slices import PageRequest
from app.domain.threads.threads import ThreadFilter, ThreadSort
from app.storage.postgres.database import Database
from app.storage.threads import listing
from tests.integration.conftest import AGENTS
from tests.support.conditions import eventually
from tests.support.invariants import broken_invariants
from tests.support.old_runs import backdate_end
from tests.support.problems import the_problem
from tests.support.servers import Server, serving
from tests.support.stored_runs import TENANT
from tests.support.streams import EVENT_STREAM, Client
from tests.support.thread_sizes import merged_rows

pytestmark = pytest.mark.anyio

WORDS = "one two three four five six seven eight nine ten " * 4


@pytest.fixture(scope="module")
async def server(served_database: str) -> AsyncIterator[Server]:
    settings = {"retention_interval": 0.2, "delta_retention": 60}
    async with serving(served_database, agents=AGENTS, **settings) as running:
        yield running


async def merged_log(client: Client, path: str, shorter_than: int) -> list[dict[str, Any]]:
    async def log_when_merged() -> list[dict[str, Any]] | None:
        log = await client.log(path)
        return log if len(log) < shorter_than else None

    return await eventually(log_when_merged)


def text_of(log: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in log if event["event_type"] == "text_delta")


async def test_an_old_run_is_replayed_in_fewer_events_and_stale_cursors_are_refused(
    client: Client, served_database: str
) -> None:
    run = await client.settled((await client.start("talker", WORDS))["id"])
    path, thread = f"/v1/runs/{run['id']}", f"/v1/threads/{run['thread_id']}"
    before = await client.log(path)
    deltas = [event["seq"] for event in before if event["event_type"] == "text_delta"]
    assert len(deltas) > 2
    assert await merged_rows(served_database, run["thread_id"]) == 0

    await backdate_end(served_database, run["id"])
    after = await merged_log(client, path, len(before))
    assert text_of(after) == text_of(before)
    assert [event["seq"] for event in after if event["event_type"] == "text_delta"] == deltas[-1:]
    assert [event for event in after if event["event_type"] != "text_delta"] == [
        event for event in before if event["event_type"] != "text_delta"
    ]
    assert await merged_rows(served_database, run["thread_id"]) == len(deltas) - 1

    for scope in (path, thread):
        stale = {**EVENT_STREAM, "Last-Event-ID": str(deltas[0])}
        response = await client.http.get(f"{scope}/events", headers=stale)
        problem = the_problem(response, 410, "cursor_expired")
        assert problem["oldest_available"] == deltas[-1]
        assert problem["last_event_id"] == before[-1]["seq"]
        assert (await client.http.get(problem["snapshot"])).status_code == 200
    last_seen = {**EVENT_STREAM, "Last-Event-ID": str(before[-1]["seq"])}
    assert (await client.http.get(f"{path}/events", headers=last_seen)).status_code == 204
    assert await broken_invariants(served_database) == {}
    async with client.events(path, last_id=str(deltas[-1])) as stream:
        assert await stream.rest() == [event for event in before if event["seq"] > deltas[-1]]


async def test_deleting_a_thread_deletes_its_rules(client: Client) -> None:
    thread_id = new_id()
    for scope in ("thread", "run", "agent"):
        body = {"thread_id": thread_id}
        started = await client.start("quick", f'CALL risky {{"what": "{scope}"}}', **body)
        waiting = await client.settled(started["id"])
        remember = {"scope": scope, "match": "arguments"}
        await client.decide(waiting, "approve", remember=remember)
        await client.settled(started["id"])
    scopes = {rule["scope"] for rule in (await client.get("/v1/rules"))["items"]}
    assert scopes == {"thread", "run", "agent"}
    assert (await client.http.delete(f"/v1/threads/{thread_id}")).status_code == 204
    [remaining] = (await client.get("/v1/rules"))["items"]
    assert remaining["scope"] == "agent"


async def test_the_metadata_filter_of_threads_uses_its_index(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(text(_MANY_THREADS), {"tenant": TENANT})
        await connection.execute(text("ANALYZE threads"))
    async with database.reading() as connection:
        found = await listing.page(
            connection,
            TENANT,
            ThreadFilter(metadata={"case": 777}),
            ThreadSort.CREATED,
            PageRequest(),
        )
        await connection.execute(text("SELECT pg_stat_force_next_flush()"))
    used = await database.pool.fetchval(_USED)
    assert [listed.thread.metadata for listed in found] == [{"case": 777}]
    assert used == 1


_MANY_THREADS = """
INSERT INTO threads (tenant, id, metadata)
SELECT :tenant, gen_random_uuid(),
    CASE WHEN n % 2 = 0 THEN '{}'::jsonb ELSE jsonb_build_object('case', n) END
FROM generate_series(1, 20000) n
"""
_USED = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'threads_metadata'"
