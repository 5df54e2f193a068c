"""What every tier needs: one event loop library, and a real Postgres with a database per test."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from filelock import FileLock

from app.embedded_postgres.server import EmbeddedPostgres
from app.storage import migrations
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from tests.support.databases import Databases

ENOUGH_MEMORY = 2 * 1024**3

# What an exception's frames hold is drawn for seconds where rich is installed: the loop would stand still.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]
)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def quick_folder() -> Path:
    """Memory, where there is enough: to make and drop a database for each test takes a disk's file system
    half of all the time."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ENOUGH_MEMORY:
        return memory
    return Path(tempfile.gettempdir())


@pytest.fixture(scope="session")
def postgres(testrun_uid: str) -> Iterator[Databases]:
    """One server for all test processes of this run, with a migrated template database."""
    folder = quick_folder() / f"holdfast-tests-{testrun_uid[:12]}"
    server = EmbeddedPostgres.start(
        folder, settings={"fsync": "off", "max_connections": "300", "full_page_writes": "off"}
    )
    databases = Databases(server.dsn)
    try:
        with FileLock(folder / "template.lock"):
            asyncio.run(databases.make_template(migrations.upgrade))
        yield databases
    finally:
        server.stop()
        if not (folder / "cluster" / "postmaster.pid").exists():
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def database_url(postgres: Databases) -> AsyncIterator[str]:
    """A fresh, migrated database of this test's own."""
    async with postgres.fresh() as url:
        yield url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.open(database_url, DatabaseOptions(pool_size=5, hot_pool_size=5))
    yield opened
    await opened.close()


@pytest.fixture
async def postgres_url(postgres: Databases) -> AsyncIterator[str]:
    """A fresh database in which nothing was ever made."""
    async with postgres.fresh("template1") as url:
        yield url
