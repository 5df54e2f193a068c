"""Which revision a database has, and whether this version runs on it.

A version runs on its own newest revision. It also runs on the next one, if that is additive: then replicas of
both versions serve during a rollout, and the rollout can be taken back. A version doesn't know later revisions,
so each migration writes into the table `schema_revisions` what it follows and whether it is additive.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import assert_never

import asyncpg
from msgspec import Struct

from app.domain.errors import DatabaseUnusable
from app.storage import unreleased
from app.storage.postgres.database import OLDEST_SERVER, RawPool

_IN_THE_WHEEL = Path(__file__).resolve().with_name("migration_scripts")
SCRIPTS = (
    _IN_THE_WHEEL if _IN_THE_WHEEL.exists() else Path(__file__).resolve().parents[2] / "migrations"
)
_NAMED = re.compile(r'^(revision|down_revision)\b[^=\n]*= "([^"]+)"', re.MULTILINE)
MAJOR_VERSION = "SELECT current_setting('server_version_num')::int / 10000"
IS_NEXT = """
SELECT EXISTS (SELECT FROM schema_revisions WHERE revision = $1 AND previous = $2 AND is_additive)
"""


class NotMigrated(DatabaseUnusable):
    """The schema is older than this version. `holdfast migrate` updates it."""


class SchemaStatus(StrEnum):
    CURRENT = "current"
    AHEAD = "ahead"
    """One additive revision ahead. This version runs on it."""
    OLD = "old"
    """This version can migrate it."""
    TOO_NEW = "too_new"
    """Only a newer version runs on it."""


class FoundSchema(Struct, frozen=True):
    revision: str | None
    """None in a database that was never migrated."""
    status: SchemaStatus


@cache
def _previous_revisions() -> Mapping[str, str | None]:
    """The previous revision of each one, as the migrations say it.

    They are read as text: the library of migrations would take a fifth of the time of a start.
    """
    found: dict[str, str | None] = {}
    for script in (SCRIPTS / "versions").glob("*.py"):
        named = dict(_NAMED.findall(script.read_text(encoding="utf-8")))
        if "revision" in named:
            found[named["revision"]] = named.get("down_revision")
    return found


@cache
def newest_revision() -> str:
    previous = _previous_revisions()
    newest = previous.keys() - previous.values()
    if len(newest) != 1:
        raise RuntimeError(f"{len(newest)} newest migrations in {SCRIPTS}")
    return newest.pop()


@cache
def known_revisions() -> frozenset[str]:
    return frozenset({*_previous_revisions(), *unreleased.SUPPORTED, *unreleased.TOO_OLD})


def described(revision: str) -> str:
    """The revision of a database that this version runs on, for a sentence."""
    newest = newest_revision()
    return revision if revision == newest else f"{revision}, one ahead of this version ({newest})"


async def read_schema(pool: RawPool) -> FoundSchema:
    """The revision of the database, and whether this version runs on it."""
    found = await _revision(pool)
    if found == newest_revision():
        return FoundSchema(found, SchemaStatus.CURRENT)
    if found is None or found in known_revisions():
        return FoundSchema(found, SchemaStatus.OLD)
    try:
        is_next = await pool.fetchval(IS_NEXT, found, newest_revision())
    except asyncpg.UndefinedTableError:
        is_next = False
    return FoundSchema(found, SchemaStatus.AHEAD if is_next else SchemaStatus.TOO_NEW)


async def _revision(pool: RawPool) -> str | None:
    try:
        found: str | None = await pool.fetchval(unreleased.REVISION)
    except asyncpg.UndefinedTableError:
        return None
    return found


def too_old(found: str) -> DatabaseUnusable:
    return DatabaseUnusable(
        f"The database is at revision {found} of a version before the first release, and can only be "
        f"migrated from {unreleased.SUPPORTED[0]} on. Use a new database."
    )


async def require_usable(pool: RawPool) -> FoundSchema:
    """Raise unless the server is recent enough, and has the schema of this version or an additive next one."""
    await require_recent(pool)
    found = await read_schema(pool)
    match found.status:
        case SchemaStatus.CURRENT | SchemaStatus.AHEAD:
            return found
        case SchemaStatus.TOO_NEW:
            raise DatabaseUnusable(
                f"The database was migrated by a newer version (revision {found.revision}), and this version "
                f"(revision {newest_revision()}) can't run on it. Run the newer version, or restore a backup."
            )
        case SchemaStatus.OLD:
            if found.revision in unreleased.TOO_OLD:
                raise too_old(found.revision)
            raise NotMigrated(
                f"The database isn't migrated (at {found.revision or 'nothing'}, needs {newest_revision()}). "
                "Run `holdfast migrate`, or start with HOLDFAST_MIGRATE=1."
            )
        case _:
            assert_never(found.status)


async def require_recent(pool: RawPool) -> None:
    require_recent_version(await pool.fetchval(MAJOR_VERSION))


def require_recent_version(major: int) -> None:
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
