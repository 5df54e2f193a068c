"""What every tier needs: one event loop library, and a real Postgres with a database per test."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from filelock import FileLock
from hypothesis import HealthCheck, settings

from app.embedded_postgres.server import EmbeddedPostgres
from app.storage import migrations
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from tests.support.databases import Databases

ENOUGH_MEMORY = 2 * 1024**3

# Shells start background jobs with SIGINT ignored, and processes inherit that. Tests send Ctrl-C to servers.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# On a busy machine any example may take long.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")

# With rich installed, structlog renders the locals of each frame, which blocks the loop for seconds.
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
    """A folder in memory if it is large enough: on disk, creating and dropping databases takes half of the time."""
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
    """A new, migrated database for this test."""
    async with postgres.fresh() as url:
        yield url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.open(database_url, DatabaseOptions(pool_size=5, hot_pool_size=5))
    yield opened
    await opened.close()


@pytest.fixture
async def postgres_url(postgres: Databases) -> AsyncIterator[str]:
    """A new, empty database."""
    async with postgres.fresh("template1") as url:
        yield url
