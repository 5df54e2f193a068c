"""Databases for tests: copies of one migrated template, dropped when their test is over."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

TEMPLATE = "holdfast_template"


class Databases:
    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def url(self, name: str) -> str:
        parts = urlsplit(self.dsn)
        return urlunsplit((parts.scheme, parts.netloc, f"/{name}", parts.query, ""))

    async def make_template(self, migrate: Callable[[str], Awaitable[object]]) -> None:
        """Runs once per server, in the first test process."""
        connection = await asyncpg.connect(self.dsn)
        try:
            found = await connection.fetchval(
                "SELECT 1 FROM pg_database WHERE datname = $1", TEMPLATE
            )
            if found is None:
                await connection.execute(f"CREATE DATABASE {TEMPLATE}")
                await migrate(self.url(TEMPLATE))
        finally:
            await connection.close()

    @asynccontextmanager
    async def fresh(self, template: str = TEMPLATE) -> AsyncIterator[str]:
        name = f"test_{uuid4().hex}"
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(
                f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY"
            )
            yield self.url(name)
            await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        finally:
            await connection.close()
