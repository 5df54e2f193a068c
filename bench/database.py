"""Observes the database: bytes written, connections, and the time of a commit."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from statistics import median

import psutil

from app.domain.ids import Tenant, ThreadId
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database, RawPool
from app.storage.threads import messages

TENANT = Tenant("default")

_TABLES = """
SELECT table_name FROM information_schema.columns
WHERE table_schema = 'public' AND column_name = 'tenant'
"""
_CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
_FACTS = """
SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync,
    current_setting('synchronous_commit') AS commit
"""


class Postgres:
    def __init__(self, pool: RawPool, tables: list[str]) -> None:
        self._pool = pool
        self._rows = " UNION ALL ".join(
            f"SELECT count(*) AS n FROM {table} WHERE xmin::text::bigint > $1" for table in tables
        )
        self._server: psutil.Process | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> "AsyncIterator[Postgres]":
        """Connect beside the server; needs its schema."""
        database = await Database.open(url, DatabaseOptions(pool_size=1, hot_pool_size=1))
        try:
            found = await database.pool.fetch(_TABLES)
            postgres = cls(database.pool, [row["table_name"] for row in found])
            await postgres._find_process()
            yield postgres
        finally:
            await database.close()

    async def position(self) -> tuple[int, int]:
        """The end of the write-ahead log in bytes, and the newest transaction."""
        row = await self._pool.fetchrow(
            "SELECT pg_current_wal_insert_lsn() - '0/0' AS wal, "
            "(pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1) & 4294967295 AS xid"
        )
        assert row is not None
        return int(row["wal"]), int(row["xid"])

    async def rows_since(self, xid: int) -> int:
        """Rows of tenants that later transactions inserted or updated."""
        found = await self._pool.fetchval(f"SELECT sum(n) FROM ({self._rows}) AS each", xid)
        return int(found)

    async def history_seconds(self, thread_id: str) -> float:
        """Seconds to read a thread's whole log, as a run does at its start."""
        began = time.perf_counter()
        await messages.history(self._pool, TENANT, ThreadId(thread_id))
        return time.perf_counter() - began

    async def connections(self) -> int:
        return int(await self._pool.fetchval(_CONNECTIONS))

    async def commit_seconds(self) -> float:
        """The shortest time of a commit on this machine."""
        taken = []
        for _ in range(50):
            began = time.perf_counter()
            await self._pool.execute("SELECT pg_logical_emit_message(true, 'bench', '')")
            taken.append(time.perf_counter() - began)
        return median(taken)

    async def facts(self) -> str:
        row = await self._pool.fetchrow(_FACTS)
        assert row is not None
        return (
            f"Postgres {row['version']}, fsync {row['fsync']}, synchronous_commit {row['commit']}"
        )

    def cpu_seconds(self) -> float:
        """CPU seconds of all its processes; 0 on another machine."""
        if self._server is None:
            return 0.0
        total = 0.0
        for process in self._server.children():
            with suppress(psutil.NoSuchProcess):
                spent = process.cpu_times()
                total += spent.user + spent.system
        return total

    async def _find_process(self) -> None:
        backend = await self._pool.fetchval("SELECT pg_backend_pid()")
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(backend).parent()
            if parent is not None and parent.name().startswith("postgres"):
                self._server = parent
