"""Migrates a database to the schema of this version.

Only processes that migrate import this module, because its library takes a fifth of the time of a start.
"""

from collections.abc import Callable
from typing import TypeAlias

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, NullPool, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from app.domain.errors import DatabaseUnusable
from app.storage import unreleased
from app.storage.postgres.connect import CANNOT_CONNECT
from app.storage.postgres.errors import TRANSIENT_CODES, unusable
from app.storage.postgres.urls import asyncpg_dsn, place_of, unreachable
from app.storage.schema_revision import (
    IS_NEXT,
    MAJOR_VERSION,
    SCRIPTS,
    known_revisions,
    newest_revision,
    require_recent_version,
    too_old,
)

Step: TypeAlias = Callable[[Config], None]

_NOT_ALLOWED = asyncpg.InsufficientPrivilegeError
_MIGRATION_LOCK = 0x486F6C64  # "Hold": the advisory lock by which replicas migrate one at a time
_HAS_REVISION = "SELECT to_regclass('alembic_version') IS NOT NULL"
_HAS_REVISIONS = "SELECT to_regclass('schema_revisions') IS NOT NULL"


def async_url(url: str) -> str:
    """The URL as SQLAlchemy wants it for asyncpg."""
    return asyncpg_dsn(url).replace("postgresql://", "postgresql+asyncpg://", 1)


def is_ours(name: str | None, kind: str, _parents: object) -> bool:
    """Whether autogenerate compares a schema or table. The queue's schema belongs to pgqueuer."""
    return not (kind == "schema" and name not in (None, "public"))


async def upgrade(url: str, revision: str = "head") -> str:
    """Migrate in one transaction, and return the revision that the database then has.

    Processes that migrate at once wait for each other. A database that is one additive revision ahead is left
    as it is.
    """
    reached = ""

    def step(config: Config) -> None:
        nonlocal reached
        reached = _upgrade(config, revision)

    try:
        await _migrate(url, step)
    except CommandError as error:
        # The only cause here: alembic doesn't know the revision of the database.
        raise DatabaseUnusable(
            f"The database was migrated by a newer version ({error}). Run that version."
        ) from error
    return reached


def _upgrade(config: Config, revision: str) -> str:
    connection: Connection = config.attributes["connection"]
    if connection.execute(text(_HAS_REVISION)).scalar_one():
        found: str | None = connection.execute(text(unreleased.REVISION)).scalar_one_or_none()
        if found in unreleased.TOO_OLD:
            raise too_old(found)
        if found in unreleased.SUPPORTED:
            unreleased.bridge(connection, found)
        elif found is not None and _is_ahead(connection, found):
            return found
    command.upgrade(config, revision)
    reached: str = connection.execute(text(unreleased.REVISION)).scalar_one()
    return reached


def _is_ahead(connection: Connection, found: str) -> bool:
    """Whether the database is one additive revision ahead of this version."""
    if found in known_revisions():
        return False
    if not connection.execute(text(_HAS_REVISIONS)).scalar_one():
        return False
    arguments = (found, newest_revision())
    is_next: bool = connection.exec_driver_sql(IS_NEXT, arguments).scalar_one()
    return is_next


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
            require_recent_version((await connection.execute(text(MAJOR_VERSION))).scalar_one())
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
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    step(config)
