"""Statements and transactions on the connections of one pool."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import bindparam, select, text, update
from sqlalchemy.dialects.postgresql import insert

from app.domain.errors import DatabaseUnavailable, UnavailableReason
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.connection import MoreThanOneRow
from app.storage.postgres.database import Database
from app.storage.postgres.statements import prepared, query_of
from app.storage.tables import server_secrets, threads, tickets

pytestmark = pytest.mark.anyio

THREAD = "0190f7c0-0000-7000-8000-000000000001"
OTHER = "0190f7c0-0000-7000-8000-000000000002"


@pytest.fixture
async def small(database_url: str) -> AsyncIterator[Database]:
    """One connection for transactions, and one more."""
    database = await Database.open(
        database_url, DatabaseOptions(pool_size=1, hot_pool_size=1, pool_timeout=0.2)
    )
    try:
        yield database
    finally:
        await database.close()


def test_a_prepared_statement_binds_only_the_parameters_that_it_names() -> None:
    statement = prepared(
        select(tickets.c.id).where(
            tickets.c.tenant == bindparam("tenant"),
            tickets.c.status == "open",
            tickets.c.kind.in_(("child", "event")),
        )
    )
    query = statement.query({"tenant": "a"})
    assert "status = 'open'" in query.text
    assert "IN ('child', 'event')" in query.text
    assert list(query.arguments) == ["a"]
    assert query.returns_rows


def test_a_statement_of_the_same_structure_is_compiled_once() -> None:
    first, second = (
        query_of(select(threads.c.id).where(threads.c.tenant == tenant), {})
        for tenant in ("first", "second")
    )
    assert first.text is second.text
    assert [list(first.arguments), list(second.arguments)] == [["first"], ["second"]]


def test_a_list_of_values_has_as_many_parameters_as_values() -> None:
    for ids in ([], [THREAD], [THREAD, OTHER]):
        query = query_of(select(threads.c.tenant).where(threads.c.id.in_(ids)), {})
        assert [one for one in query.arguments if one is not None] == ids


def test_only_statements_with_returning_or_select_return_rows() -> None:
    change = update(threads).where(threads.c.id == THREAD).values(title="x")
    assert not query_of(change, {}).returns_rows
    assert query_of(change.returning(threads.c.id), {}).returns_rows
    assert query_of(
        text("UPDATE threads SET title = :title RETURNING id"), {"title": "x"}
    ).returns_rows
    assert not query_of(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"), {}).returns_rows


async def test_a_value_of_json_is_decoded_once(small: Database) -> None:
    metadata = {"text": '"quoted"', "list": [1, None], "none": None}
    async with small.transaction() as connection:
        await connection.execute(insert(threads).values(tenant="a", id=THREAD, metadata=metadata))
        found = await connection.execute(select(threads).where(threads.c.id == THREAD))
    row = found.one()
    assert row["metadata"] == row.metadata == metadata
    assert row["id"] == THREAD
    assert row["state"] is None
    read = await small.pool.fetchval("SELECT metadata -> 'text' FROM threads WHERE id = $1", THREAD)
    assert read == '"quoted"'


async def test_rows_are_counted_and_written_together(small: Database) -> None:
    rows = [{"tenant": "a", "id": THREAD}, {"tenant": "a", "id": OTHER}]
    async with small.transaction() as connection:
        await connection.execute_many(insert(threads), rows)
        changed = await connection.execute(update(threads).values(title="x"))
        assert changed.rowcount == len(rows)
        again = insert(threads).values(rows[0]).on_conflict_do_nothing()
        assert (await connection.execute(again)).rowcount == 0
        with pytest.raises(MoreThanOneRow):
            (await connection.execute(select(threads.c.id))).one_or_none()


async def test_transactions_leave_a_connection_for_single_statements(small: Database) -> None:
    async with small.transaction():
        assert await small.pool.fetchval("SELECT 1") == 1
        with pytest.raises(DatabaseUnavailable) as busy:
            async with small.transaction():
                pass
        assert busy.value.reason is UnavailableReason.BUSY
    async with small.reading() as connection:
        assert await connection.scalar(text("SELECT 2")) == 2


async def test_a_block_that_raises_is_rolled_back(small: Database) -> None:
    secret = insert(server_secrets).values(name="x", value=b"x")

    async def write_and_raise() -> None:
        async with small.transaction() as connection:
            await connection.execute(secret)
            raise LookupError

    with pytest.raises(LookupError):
        await write_and_raise()
    async with small.transaction() as connection:
        await connection.execute(secret)


async def test_a_cancelled_transaction_is_rolled_back(small: Database) -> None:
    begun = asyncio.Event()

    async def write() -> None:
        async with small.transaction() as connection:
            await connection.execute(insert(server_secrets).values(name="x", value=b"x"))
            begun.set()
            await connection.execute(text("SELECT pg_sleep(60)"))

    async with asyncio.TaskGroup() as group:
        writing = group.create_task(write())
        await begun.wait()
        writing.cancel()
    async with small.transaction() as connection:
        assert (await connection.execute(select(server_secrets.c.name))).all() == []


async def test_a_transaction_plans_by_statistics_and_a_single_statement_by_keys(
    small: Database,
) -> None:
    setting = "SELECT current_setting('enable_seqscan') || current_setting('plan_cache_mode')"
    assert await small.pool.fetchval(setting) == "offforce_generic_plan"
    async with small.transaction() as connection:
        assert await connection.scalar(text(setting)) == "onauto"
    async with small.reading() as connection:
        assert await connection.scalar(text(setting)) == "onauto"
    assert await small.pool.fetchval(setting) == "offforce_generic_plan"


async def test_the_error_of_a_block_is_kept_if_the_server_ended_its_connection(
    small: Database,
) -> None:
    async def fail() -> None:
        async with small.transaction() as connection:
            pid = await connection.scalar(text("SELECT pg_backend_pid()"))
            ended = asyncio.Event()
            connection.driver.add_termination_listener(lambda *_: ended.set())
            await small.pool.execute("SELECT pg_terminate_backend($1)", pid)
            await ended.wait()
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert await small.pool.fetchval("SELECT 1") == 1
