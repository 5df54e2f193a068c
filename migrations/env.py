"""Runs migrations on one connection: the one that `holdfast migrate` holds, or a new one."""

import asyncio
import os

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import Script
from sqlalchemy import Connection, pool, text
from sqlalchemy.ext.asyncio import create_async_engine

from app.storage.migrations import async_url, is_ours
from app.storage.tables import metadata

_DELETE = text("DELETE FROM schema_revisions WHERE revision = :revision")
_INSERT = text(
    "INSERT INTO schema_revisions (revision, previous, is_additive) "
    "VALUES (:revision, :previous, :is_additive)"
)


def record_revision(
    ctx: MigrationContext, step: MigrationInfo, heads: object, run_args: object
) -> None:
    """Write whether the version before can run on this revision. It reads that in
    `app/storage/schema_revision.py`."""
    connection, script = ctx.connection, step.up_revision
    assert connection is not None
    if not isinstance(script, Script) or script.down_revision is None:
        return
    connection.execute(_DELETE, {"revision": script.revision})
    if step.is_upgrade:
        values = {"previous": script.down_revision, "is_additive": script.module.is_additive}
        connection.execute(_INSERT, {"revision": script.revision, **values})


def migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_name=is_ours,
        compare_server_default=True,
        on_version_apply=record_revision,
    )
    with context.begin_transaction():
        context.run_migrations()


async def connect_and_migrate() -> None:
    engine = create_async_engine(async_url(os.environ["DATABASE_URL"]), poolclass=pool.NullPool)
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
        await connection.commit()
    await engine.dispose()


held = context.config.attributes.get("connection")
if held is not None:
    migrate(held)
else:
    asyncio.run(connect_and_migrate())
