"""The checks of `holdfast doctor` that need the database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.bootstrap.connections import living_workers, require_direct_url
from app.cli.setup.findings import Findings
from app.domain.errors import ConfigurationError, DatabaseUnusable
from app.embedded_postgres.server import EmbeddedPostgres, default_data_dir
from app.settings import Settings
from app.storage import schema_revision
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.connection_budget import (
    connection_budget,
    connections_of,
    has_statement_timeout,
)
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.postgres.urls import place_of
from app.storage.schema_revision import described

_DATABASE_ERRORS: tuple[type[Exception], ...] = (
    ConfigurationError,
    DatabaseUnusable,
    *DATABASE_UNAVAILABLE,
)


async def check(findings: Findings, settings: Settings) -> int | None:
    """Check the database. Returns how many living workers use it, if that can be read."""
    data_dir = settings.data_dir or default_data_dir()
    if settings.database_url is None and not (data_dir / "cluster").exists():
        findings.ok("database", f"embedded; the first start creates it in {data_dir}")
        return None
    try:
        async with _opened(settings) as (database, place):
            await schema_revision.require_recent(database.pool)
            version = await schema_revision.server_version(database.pool)
            findings.ok("database", f"Postgres {version} at {place}")
            return await _schema(findings, database, settings)
    except _DATABASE_ERRORS as error:
        findings.problem("database", str(error) or type(error).__name__)
        return None


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[Database, str]]:
    """Opens the database that a server would use, and starts an embedded one if necessary."""
    embedded: EmbeddedPostgres | None = None
    url = settings.database_url
    if url is None:
        data_dir = settings.data_dir or default_data_dir()
        embedded = await asyncio.to_thread(EmbeddedPostgres.start, data_dir)
        url, place = embedded.url, str(embedded.data_dir)
    else:
        place = place_of(url)
    try:
        require_direct_url(settings)
        options = DatabaseOptions(pool_size=2, hot_pool_size=2, pgbouncer=settings.pgbouncer)
        database = await Database.open(url, options, listen_url=settings.listen_url)
        try:
            yield database, place
        finally:
            await database.close()
    finally:
        if embedded is not None:
            await asyncio.to_thread(embedded.stop)


async def _schema(findings: Findings, database: Database, settings: Settings) -> int | None:
    try:
        found = await schema_revision.require_usable(database.pool)
    except schema_revision.NotMigrated as error:
        if settings.migrate or (settings.migrate is None and settings.database_url is None):
            findings.ok("migrations", "the next start runs them")
        else:
            findings.problem("migrations", str(error))
        return None
    findings.ok("migrations", f"revision {described(found.revision or '')}")
    if await schema_revision.has_queue(database.pool):
        findings.ok("queue")
    else:
        findings.problem("queue", "its tables are missing. Restore the schema pgq from a backup.")
    await _connections(findings, database, settings)
    return await living_workers(database, settings)


async def _connections(findings: Findings, database: Database, settings: Settings) -> None:
    each = connections_of(
        pool_size=settings.pool_size,
        hot_pool_size=settings.hot_pool_size,
        pgbouncer=settings.pgbouncer,
    )
    found = await connection_budget(database.pool, each)
    count = f"{found.processes} running, each opens up to {found.each} of {found.available}"
    if found.is_enough:
        findings.ok("connections", count)
    else:
        findings.problem(
            "connections",
            f"{count}: raise max_connections, lower HOLDFAST_POOL_SIZE or HOLDFAST_HOT_POOL_SIZE, "
            "or use PgBouncer",
        )
    if settings.pgbouncer and not await has_statement_timeout(database.pool):
        findings.problem(
            "statement timeout",
            "none behind PgBouncer: ALTER ROLE … SET statement_timeout = '15s', lock_timeout = '5s'",
        )
