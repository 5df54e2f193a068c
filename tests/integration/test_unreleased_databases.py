"""Databases of the versions before the baseline are migrated with all their rows.

`databases/at_0015.sql` and `at_0020.sql` were made by these versions: their migrations made the schema, and
their code wrote the rows. Revision 0021 only added an index. `at_first_week.sql` is of the version before the two
baselines became one; a database of the first baseline lacks the two tables that this version added.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pytest

from app.domain.children.followups import ChildFollowup, FollowupKind
from app.domain.errors import DatabaseUnusable
from app.domain.ids import RunId, Tenant, ThreadId
from app.storage import migrations, schema_revision, server_secrets
from app.storage.children import background_tasks
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.queue import deliveries, failed_followups
from app.storage.runs import runs
from app.storage.threads import messages, threads
from app.storage.tickets import tickets
from tests.integration.test_migrations import schema_of
from tests.support.databases import Databases

pytestmark = pytest.mark.anyio

Rows: TypeAlias = dict[str, list[dict[str, Any]]]

DATABASES = Path(__file__).with_name("databases")
RENAMED_TABLES = {"failed_errands": "failed_followups"}
RENAMED_COLUMNS = {
    "answer": "response_status",
    "duty": "job",
    "kept": "unreported_outcome",
    "ran_with": "edited_arguments",
    "run_with": "edited_arguments",
}
RENAMED_VALUES = {
    "errand": "followup",
    "forget_child": "delete_child",
    "forget_inputs": "delete_inputs",
    "forget_tasks": "delete_tasks",
    "pass_on_messages": "forward_messages",
    "tell_parent": "report_to_parent",
}
NOT_KEPT = ("alembic_version", "blobs", "schema_revisions")


AT_0021 = """
CREATE INDEX runs_waiting_to_be_cancelled ON runs (updated_at)
    WHERE status = 'waiting' AND cancel_requested_at IS NOT NULL;
UPDATE alembic_version SET version_num = '0021';
"""


AT_THE_FIRST_BASELINE = """
DROP TABLE child_tickets;
DROP TABLE schema_revisions;
UPDATE alembic_version SET version_num = '0001_baseline';
"""


WITH_OLD_NAMES = [
    pytest.param(("at_0015.sql", ""), id="0015"),
    pytest.param(("at_0020.sql", ""), id="0020"),
    pytest.param(("at_0020.sql", AT_0021), id="0021"),
]
WITH_NEW_NAMES = [
    pytest.param(("at_first_week.sql", AT_THE_FIRST_BASELINE), id="first baseline"),
    pytest.param(("at_first_week.sql", ""), id="first week"),
]


@pytest.fixture(params=[*WITH_OLD_NAMES, *WITH_NEW_NAMES])
async def old_url(request: pytest.FixtureRequest, postgres: Databases) -> AsyncIterator[str]:
    """A database that was made and used by a version before the baseline."""
    async with postgres.fresh("template0") as url:
        connection = await asyncpg.connect(url)
        file, more = request.param
        await connection.execute((DATABASES / file).read_text() + more)
        await connection.close()
        yield url


async def rows_of(url: str) -> Rows:
    """Every row of every table, by the name of the table, without the payloads of jobs."""
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('public', 'pgq')"
        )
        return {
            table: [
                json.loads(row["row"])
                for row in await connection.fetch(
                    f'SELECT (to_jsonb(t) - $1::text[])::text AS row FROM {schema}."{table}" t'
                    " ORDER BY t::text",
                    ["payload", "dedupe_key"] if schema == "pgq" else [],
                )
            ]
            for schema, table in tables
        }
    finally:
        await connection.close()


def as_migrated(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """An old row with the names and values of the baseline."""
    renamed = {RENAMED_COLUMNS.get(column, column): value for column, value in row.items()}
    if table.startswith("pgqueuer"):
        renamed["entrypoint"] = RENAMED_VALUES.get(renamed["entrypoint"], renamed["entrypoint"])
    if table == "retention":
        renamed["job"] = RENAMED_VALUES.get(renamed["job"], renamed["job"])
    if table == "failed_followups":
        renamed["name"] = RENAMED_VALUES.get(renamed["name"], renamed["name"])
    return renamed


async def test_the_schema_becomes_that_of_a_new_database(old_url: str, database_url: str) -> None:
    await migrations.upgrade(old_url)

    await migrations.check_drift(old_url)
    assert await schema_of(old_url) == await schema_of(database_url)


async def test_every_row_is_kept(old_url: str) -> None:
    before = await rows_of(old_url)
    await migrations.upgrade(old_url)
    after = await rows_of(old_url)

    for old_table in before.keys() - NOT_KEPT:
        table = RENAMED_TABLES.get(old_table, old_table)
        left = after[table]
        for row in (as_migrated(table, row) for row in before[old_table]):
            assert row in [{column: found.get(column) for column in row} for found in left], table
        assert len(left) == len(before[old_table])


async def test_the_rows_are_read_by_this_version(old_url: str) -> None:
    before = await rows_of(old_url)
    await migrations.upgrade(old_url)
    database = await Database.open(old_url, DatabaseOptions())
    try:
        await schema_revision.require_usable(database.pool)
        async with database.reading() as connection:
            for row in before["runs"]:
                tenant, run_id = Tenant(row["tenant"]), RunId(row["id"])
                run = await runs.get(connection, tenant, run_id)
                assert run is not None
                assert (run.id, run.status) == (row["id"], row["status"])
                await tickets.of_run(connection, tenant, run_id)
                await failed_followups.of_run(connection, tenant, run_id)
            for row in before["threads"]:
                tenant, thread_id = Tenant(row["tenant"]), ThreadId(row["id"])
                assert await threads.get(connection, tenant, thread_id) is not None
                await messages.history(database.pool, tenant, thread_id)
            for row in before["tasks"]:
                assert await background_tasks.get(connection, row["tenant"], row["id"]) is not None
        assert await server_secrets.stream_token_secret(database.pool)
    finally:
        await database.close()


@pytest.mark.parametrize("old_url", WITH_OLD_NAMES, indirect=True)
async def test_queued_follow_ups_have_their_new_names(old_url: str) -> None:
    await migrations.upgrade(old_url)
    connection = await asyncpg.connect(old_url)
    queued = await connection.fetch(
        "SELECT dedupe_key, payload FROM pgq.pgqueuer WHERE entrypoint = 'followup'"
    )
    await connection.close()

    followups = [deliveries.delivered_followup(row["payload"]) for row in queued]
    kinds = {each.kind for each in followups if isinstance(each, ChildFollowup)}
    keys = [row["dedupe_key"] for row in queued if row["dedupe_key"] is not None]
    assert {FollowupKind.FORWARD_MESSAGES, FollowupKind.REPORT_TO_PARENT} <= kinds
    assert [key for key in keys if key.startswith("forward_messages:default:")]
    assert not [key for key in keys if key.startswith(tuple(RENAMED_VALUES))]


@pytest.mark.parametrize("old_url", WITH_OLD_NAMES, indirect=True)
async def test_keys_of_stored_json_have_their_new_names(old_url: str) -> None:
    connection = await asyncpg.connect(old_url)
    remote = {"version": 1, "told": 7, "turn": None}
    state = {"revision": 2, "extensions": {"__runtime_remote_backend": remote}}
    evidence = {"idempotency_key": "key", "ran_with": {"amount": 5}}
    run = await connection.fetchval("SELECT id FROM runs LIMIT 1")
    ticket = await connection.fetchval("SELECT id FROM tickets LIMIT 1")
    await connection.execute("UPDATE runs SET state = $1 WHERE id = $2", json.dumps(state), run)
    await connection.execute(
        "UPDATE tickets SET evidence = $1 WHERE id = $2", json.dumps(evidence), ticket
    )
    await connection.close()

    await migrations.upgrade(old_url)

    connection = await asyncpg.connect(old_url)
    migrated = await connection.fetchval("SELECT state FROM runs WHERE id = $1", run)
    shown = await connection.fetchval("SELECT evidence FROM tickets WHERE id = $1", ticket)
    await connection.close()
    remote = {"version": 1, "last_sent_seq": 7, "turn": None}
    assert json.loads(migrated) == {
        "revision": 2,
        "extensions": {"__runtime_remote_backend": remote},
    }
    assert json.loads(shown) == {"idempotency_key": "key", "arguments": {"amount": 5}}


async def test_a_database_before_the_baseline_is_refused_until_it_is_migrated(
    old_url: str,
) -> None:
    database = await Database.open(old_url, DatabaseOptions())
    try:
        with pytest.raises(schema_revision.NotMigrated, match="Run `holdfast migrate`"):
            await schema_revision.require_usable(database.pool)
    finally:
        await database.close()


async def test_a_database_that_is_too_old_is_refused_and_not_changed(old_url: str) -> None:
    connection = await asyncpg.connect(old_url)
    await connection.execute("UPDATE alembic_version SET version_num = '0014'")
    await connection.close()
    before = await rows_of(old_url)

    with pytest.raises(DatabaseUnusable, match="revision 0014.*can only be migrated from 0015 on"):
        await migrations.upgrade(old_url)
    assert await rows_of(old_url) == before
    database = await Database.open(old_url, DatabaseOptions())
    try:
        with pytest.raises(DatabaseUnusable, match="revision 0014"):
            await schema_revision.require_usable(database.pool)
    finally:
        await database.close()
