"""Brings a database to the schema that this version needs, and tells when it isn't there."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, pool, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from app.domain.errors import DatabaseUnusable
from app.storage.postgres.connect import CANNOT_CONNECT
from app.storage.postgres.database import OLDEST_SERVER, RawPool
from app.storage.postgres.errors import TRANSIENT_CODES, unusable
from app.storage.postgres.urls import asyncpg_dsn, place_of, unreachable

Step: TypeAlias = Callable[[Config], None]

_SCRIPTS = Path(__file__).resolve().parents[2] / "migrations"
_MAJOR = "SELECT current_setting('server_version_num')::int / 10000"
_NOT_ALLOWED = asyncpg.InsufficientPrivilegeError
_LOCK = 0x486F6C64  # "Hold": whoever migrates holds it, so that replicas wait for each other


class NotMigrated(DatabaseUnusable):
    """The schema is older than this version: a migration mends it."""


def async_url(url: str) -> str:
    """The URL in SQLAlchemy's spelling for asyncpg."""
    return asyncpg_dsn(url).replace("postgresql://", "postgresql+asyncpg://", 1)


def is_ours(name: str | None, kind: str, _parents: object) -> bool:
    """Whether autogenerate should look at a schema or table; the queue's schema isn't ours."""
    return not (kind == "schema" and name not in (None, "public"))


def newest_revision() -> str:
    head = ScriptDirectory(str(_SCRIPTS)).get_current_head()
    if head is None:
        raise RuntimeError(f"no migrations in {_SCRIPTS}")
    return head


async def upgrade(url: str, revision: str = "head") -> None:
    """Migrate, one process at a time; a database that is up to date is left as it is."""
    try:
        await _migrate(url, lambda config: command.upgrade(config, revision))
    except CommandError as error:
        # All that it can stumble over is a revision that this version doesn't have.
        raise DatabaseUnusable(
            f"The database was migrated by a newer version ({error}). Run that version."
        ) from error


async def downgrade(url: str, revision: str) -> None:
    await _migrate(url, lambda config: command.downgrade(config, revision))


async def check_drift(url: str) -> None:
    """Raises when the tables in code and the migrations disagree."""
    await _migrate(url, command.check)


async def _migrate(url: str, step: Step) -> None:
    dsn = asyncpg_dsn(url)

    async def connect(**_: object) -> "asyncpg.Connection[asyncpg.Record]":
        try:
            return await asyncpg.connect(dsn, timeout=10, statement_cache_size=0)
        except CANNOT_CONNECT as error:
            raise unreachable(dsn, error) from error

    # Nothing is prepared under a name, so that a pooler may be in between.
    engine = create_async_engine(
        "postgresql+asyncpg://",
        connect_args={"async_creator_fn": connect, "prepared_statement_cache_size": 0},
        poolclass=pool.NullPool,
    )
    try:
        async with engine.begin() as connection:
            # Whatever the role allows to others, a migration takes as long as it takes.
            await connection.execute(text("SET LOCAL statement_timeout = 0"))
            # Held to the end of this transaction, which is also the migrations' own.
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
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


async def require_usable(hot: RawPool) -> None:
    """The server is recent enough and holds exactly this version's schema, or one sentence why not."""
    await require_recent(hot)
    found = await _found_revision(hot)
    wanted = newest_revision()
    if found != wanted:
        known = {script.revision for script in ScriptDirectory(str(_SCRIPTS)).walk_revisions()}
        if found is not None and found not in known:
            raise DatabaseUnusable(
                f"The database was migrated by a newer version (revision {found}). Run that version."
            )
        raise NotMigrated(
            f"The database isn't migrated (at {found or 'nothing'}, needs {wanted}). Run "
            "`holdfast migrate`, or start with HOLDFAST_MIGRATE=1."
        )


async def require_recent(hot: RawPool) -> None:
    _require_recent(await hot.fetchval(_MAJOR))


def _require_recent(major: int) -> None:
    if major < OLDEST_SERVER:
        raise DatabaseUnusable(
            f"Postgres {major} is too old: Holdfast needs {OLDEST_SERVER} or newer. Upgrade the "
            "server, or point DATABASE_URL at another one."
        )


async def server_version(hot: RawPool) -> str:
    """As it calls itself, `17.2`."""
    return str(await hot.fetchval("SHOW server_version"))


async def queue_is_there(hot: RawPool) -> bool:
    """Whether the queue's tables are where this version looks for them."""
    return bool(await hot.fetchval("SELECT to_regclass('pgq.pgqueuer') IS NOT NULL"))


async def _found_revision(hot: RawPool) -> str | None:
    try:
        found: str | None = await hot.fetchval("SELECT version_num FROM alembic_version")
    except asyncpg.UndefinedTableError:
        return None
    return found
