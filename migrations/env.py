"""Runs migrations on one connection: the one that `holdfast migrate` holds, or a new one."""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection, pool
from sqlalchemy.ext.asyncio import create_async_engine

from app.storage.migrations import async_url, is_ours
from app.storage.tables import metadata


def migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_name=is_ours,
        compare_server_default=True,
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
