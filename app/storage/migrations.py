"""Migrates a database to the schema of this version, and checks that it has that schema."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, NullPool, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from app.domain.errors import DatabaseUnusable
from app.storage.postgres.connect import CANNOT_CONNECT
from app.storage.postgres.database import OLDEST_SERVER, RawPool
from app.storage.postgres.errors import TRANSIENT_CODES, unusable
from app.storage.postgres.urls import asyncpg_dsn, place_of, unreachable
from migrations import unreleased

Step: TypeAlias = Callable[[Config], None]

_SCRIPTS = Path(__file__).resolve().parents[2] / "migrations"
_MAJOR = "SELECT current_setting('server_version_num')::int / 10000"
_NOT_ALLOWED = asyncpg.InsufficientPrivilegeError
_MIGRATION_LOCK = 0x486F6C64  # "Hold": the advisory lock by which replicas migrate one at a time
_HAS_REVISION = "SELECT to_regclass('alembic_version') IS NOT NULL"
_REVISION = "SELECT version_num FROM alembic_version"


class NotMigrated(DatabaseUnusable):
    """The schema is older than this version. `holdfast migrate` updates it."""


def async_url(url: str) -> str:
    """The URL as SQLAlchemy wants it for asyncpg."""
    return asyncpg_dsn(url).replace("postgresql://", "postgresql+asyncpg://", 1)


def is_ours(name: str | None, kind: str, _parents: object) -> bool:
    """Whether autogenerate compares a schema or table. The queue's schema belongs to pgqueuer."""
    return not (kind == "schema" and name not in (None, "public"))


def newest_revision() -> str:
    head = ScriptDirectory(str(_SCRIPTS)).get_current_head()
    if head is None:
        raise RuntimeError(f"no migrations in {_SCRIPTS}")
    return head


async def upgrade(url: str, revision: str = "head") -> None:
    """Migrate in one transaction. Processes that migrate at once wait for each other."""
    try:
        await _migrate(url, lambda config: _upgrade(config, revision))
    except CommandError as error:
        # The only cause here: alembic doesn't know the revision of the database.
        raise DatabaseUnusable(
            f"The database was migrated by a newer version ({error}). Run that version."
        ) from error


def _upgrade(config: Config, revision: str) -> None:
    connection: Connection = config.attributes["connection"]
    if connection.execute(text(_HAS_REVISION)).scalar_one():
        found = connection.execute(text(_REVISION)).scalar_one_or_none()
        if found in unreleased.TOO_OLD:
            raise _too_old(found)
        if found in unreleased.SUPPORTED:
            unreleased.bridge(connection, found)
    command.upgrade(config, revision)


def _too_old(found: str) -> DatabaseUnusable:
    return DatabaseUnusable(
        f"The database is at revision {found} of a version before the first release, and can only be "
        f"migrated from {unreleased.SUPPORTED[0]} on. Use a new database."
    )


async def downgrade(url: str, revision: str) -> None:
    await _migrate(url, lambda config: command.downgrade(config, revision))


async def check_drift(url: str) -> None:
    """Raise if the tables in the code differ from those in the database."""
    await _migrate(url, command.check)


async def _migrate(url: str, step: Step) -> None:
    dsn = asyncpg_dsn(url)

    async def connect(**_: object) -> "asyncpg.Connection[asyncpg.Record]":
        try:
            return await asyncpg.connect(dsn, timeout=10, statement_cache_size=0)
        except CANNOT_CONNECT as error:
            raise unreachable(dsn, error) from error

    # No named prepared statements: PgBouncer in transaction mode doesn't keep them.
    engine = create_async_engine(
        "postgresql+asyncpg://",
        connect_args={"async_creator_fn": connect, "prepared_statement_cache_size": 0},
        poolclass=NullPool,
    )
    try:
        async with engine.begin() as connection:
            # The role's statement time-out doesn't apply: a migration may take long.
            await connection.execute(text("SET LOCAL statement_timeout = 0"))
            # Released at the end of this transaction, which also holds the migrations.
            await connection.execute(
                text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK}
            )
            _require_recent((await connection.execute(text(_MAJOR))).scalar_one())
            await connection.run_sync(_run, step)
    except DBAPIError as error:
        if error.orig is not None and isinstance(error.orig.__cause__, _NOT_ALLOWED):
            raise DatabaseUnusable(
                f"The user of DATABASE_URL may not change the schema ({error.orig.__cause__}). "
                "Let its owner run `holdfast migrate`, or grant it the right."
            ) from error
        if error.orig is not None and isinstance(error.orig.__cause__, TRANSIENT_CODES):
            raise unusable(place_of(dsn), error.orig.__cause__) from error
        raise
    finally:
        await engine.dispose()


def _run(connection: Connection, step: Step) -> None:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    step(config)


async def require_usable(pool: RawPool) -> None:
    """Raise unless the server is recent enough and has exactly the schema of this version."""
    await require_recent(pool)
    found = await _found_revision(pool)
    wanted = newest_revision()
    if found != wanted:
        if found in unreleased.TOO_OLD:
            raise _too_old(found)
        if found is not None and found not in _known_revisions():
            raise DatabaseUnusable(
                f"The database was migrated by a newer version (revision {found}). Run that version."
            )
        raise NotMigrated(
            f"The database isn't migrated (at {found or 'nothing'}, needs {wanted}). Run "
            "`holdfast migrate`, or start with HOLDFAST_MIGRATE=1."
        )


def _known_revisions() -> set[str]:
    scripts = ScriptDirectory(str(_SCRIPTS)).walk_revisions()
    return {script.revision for script in scripts} | set(unreleased.SUPPORTED)


async def require_recent(pool: RawPool) -> None:
    _require_recent(await pool.fetchval(_MAJOR))


def _require_recent(major: int) -> None:
    if major < OLDEST_SERVER:
        raise DatabaseUnusable(
            f"Postgres {major} is too old: Holdfast needs {OLDEST_SERVER} or newer. Upgrade the "
            "server, or point DATABASE_URL at another one."
        )


async def server_version(pool: RawPool) -> str:
    """The version that the server reports, for example `17.2`."""
    return str(await pool.fetchval("SHOW server_version"))


async def has_queue(pool: RawPool) -> bool:
    """Whether the database has pgqueuer's tables in the schema `pgq`."""
    return bool(await pool.fetchval("SELECT to_regclass('pgq.pgqueuer') IS NOT NULL"))


async def _found_revision(pool: RawPool) -> str | None:
    try:
        found: str | None = await pool.fetchval(_REVISION)
    except asyncpg.UndefinedTableError:
        return None
    return found
