"""Migrations produce exactly the tables in code, run one at a time, and explain an unusable database."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from alembic.script import ScriptDirectory

from app.domain.errors import DatabaseUnusable
from app.storage import migrations, schema_revision
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.postgres.urls import asyncpg_dsn
from app.storage.schema_revision import SCRIPTS, newest_revision
from tests.support.databases import Databases
from tests.support.newer_versions import NewRevision, migrate_with

pytestmark = pytest.mark.anyio

Schema = list[tuple[str, ...]]

_SCHEMA = """
SELECT table_schema, table_name, column_name, data_type, is_nullable, coalesce(column_default, '')
FROM information_schema.columns WHERE table_schema IN ('public', 'pgq')
UNION ALL
SELECT schemaname, tablename, indexname, indexdef, '', '' FROM pg_indexes
WHERE schemaname IN ('public', 'pgq')
UNION ALL
SELECT n.nspname, coalesce(c.conrelid::regclass::text, ''), c.conname, pg_get_constraintdef(c.oid),
    '', ''
FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace
WHERE n.nspname IN ('public', 'pgq')
UNION ALL
SELECT n.nspname, p.proname, '', '', '', '' FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('public', 'pgq')
ORDER BY 1, 2, 3, 4, 5, 6
"""


@pytest.fixture
async def empty_url(postgres: Databases) -> AsyncIterator[str]:
    """A database without migrations."""
    async with postgres.fresh("template0") as url:
        yield url


async def schema_of(url: str) -> Schema:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(_SCHEMA)]
    finally:
        await connection.close()


async def refused_by_require_usable(url: str) -> str:
    database = await Database.open(url, DatabaseOptions())
    try:
        with pytest.raises(DatabaseUnusable) as refused:
            await schema_revision.require_usable(database.pool)
    finally:
        await database.close()
    return str(refused.value)


async def test_the_migrated_tables_are_those_in_code(database_url: str) -> None:
    await migrations.check_drift(database_url)


async def test_downgrading_empties_the_database_and_upgrading_restores_the_schema(
    database_url: str,
) -> None:
    before = await schema_of(database_url)

    await migrations.downgrade(database_url, "base")
    left = {table for _, table, *_ in await schema_of(database_url)}
    await migrations.upgrade(database_url)

    assert left == {"alembic_version"}
    assert await schema_of(database_url) == before


async def test_replicas_that_migrate_at_once_wait_for_each_other(
    empty_url: str, database_url: str
) -> None:
    await asyncio.gather(*(migrations.upgrade(empty_url) for _ in range(3)))
    assert await schema_of(empty_url) == await schema_of(database_url)


async def test_migrating_again_changes_nothing(database_url: str) -> None:
    before = await schema_of(database_url)
    await migrations.upgrade(database_url)
    assert await schema_of(database_url) == before


async def test_a_migrated_database_is_usable(database: Database) -> None:
    await schema_revision.require_usable(database.pool)


async def test_an_empty_database_is_refused_with_the_remedy(empty_url: str) -> None:
    error_text = await refused_by_require_usable(empty_url)
    assert "at nothing" in error_text
    assert "holdfast migrate" in error_text
    assert "\n" not in error_text


async def test_a_database_of_a_newer_version_is_refused(
    database_url: str, database: Database
) -> None:
    await database.pool.execute("UPDATE alembic_version SET version_num = '9999'")
    error_text = await refused_by_require_usable(database_url)
    assert "newer version (revision 9999)" in error_text


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@127.0.0.1:1/nowhere",
        "postgresql://me:secret@no-such-host.invalid/nowhere",
    ],
)
async def test_an_unreachable_server_is_named_without_its_password(url: str) -> None:
    for attempt in (Database.open(url, DatabaseOptions()), migrations.upgrade(url)):
        with pytest.raises(DatabaseUnusable) as refused:
            await attempt
        error_text = str(refused.value)
        assert error_text.startswith("Can't reach Postgres at ")
        assert "/nowhere" in error_text
        assert "secret" not in error_text
        assert "\n" not in error_text


async def test_a_database_that_does_not_exist_is_named(postgres: Databases) -> None:
    url = postgres.url("no_such_database")
    for attempt in (Database.open(url, DatabaseOptions()), migrations.upgrade(url)):
        with pytest.raises(DatabaseUnusable, match="no_such_database"):
            await attempt


@pytest.mark.parametrize(
    ("url", "dsn"),
    [
        ("postgres://u:p@h:5432/d", "postgresql://u:p@h:5432/d"),
        ("postgresql://u:p@h:5432/d", "postgresql://u:p@h:5432/d"),
        ("postgresql+asyncpg://u:p@h/d", "postgresql://u:p@h/d"),
        ("postgresql+psycopg://u:p@h/d", "postgresql://u:p@h/d"),
        ("postgresql://u:p%40%2F@h/d", "postgresql://u:p%40%2F@h/d"),
        ("postgresql://h/d?sslmode=require", "postgresql://h/d?sslmode=require"),
        ("postgresql+asyncpg://h/d?ssl=require", "postgresql://h/d?sslmode=require"),
        ("postgresql://h/d?connect_timeout=3&channel_binding=require", "postgresql://h/d"),
        ("postgresql:///d?host=/run/pg", "postgresql:///d?host=%2Frun%2Fpg"),
    ],
)
def test_common_spellings_of_a_url_are_read(url: str, dsn: str) -> None:
    assert asyncpg_dsn(url) == dsn


@pytest.mark.parametrize("url", ["mysql://h/d", "sqlite:///file", "just some text", ""])
def test_a_url_of_another_scheme_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(DatabaseUnusable, match="postgresql://user@host:5432/database"):
        asyncpg_dsn(url)


def test_every_revision_says_whether_the_version_before_runs_on_it() -> None:
    for script in ScriptDirectory(str(SCRIPTS)).walk_revisions():
        if script.down_revision is not None:
            assert isinstance(script.module.is_additive, bool), script.revision


async def test_each_migration_writes_what_it_follows(database_url: str, tmp_path: Path) -> None:
    added = [NewRevision("9001_first"), NewRevision("9002_second", is_additive=False)]
    await migrate_with(database_url, tmp_path / "next", added)
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch(
            "SELECT revision, previous, is_additive FROM schema_revisions"
            " WHERE revision >= '9' ORDER BY revision"
        )
    finally:
        await connection.close()
    assert [tuple(row) for row in rows] == [
        ("9001_first", newest_revision(), True),
        ("9002_second", "9001_first", False),
    ]
