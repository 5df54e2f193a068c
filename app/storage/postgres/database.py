"""The database of a process: transactions and single statements on the connections of one pool."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeAlias, cast

import asyncpg
import structlog

from app.domain.errors import DatabaseUnavailable, UnavailableReason
from app.storage.postgres import disk_check
from app.storage.postgres.connect import (
    QUEUE_CONNECTIONS,
    DatabaseOptions,
    QueuePool,
    RawConnection,
    begin,
    connection_options,
    keep,
    open_pool,
)
from app.storage.postgres.connection import DatabaseConnection, Driver
from app.storage.postgres.errors import TRANSIENT_CODES, OutageLog, reason_of
from app.storage.postgres.pool import ConnectionPool, keep_alive
from app.storage.postgres.urls import asyncpg_dsn

Connection: TypeAlias = DatabaseConnection
RawPool: TypeAlias = ConnectionPool

OLDEST_SERVER = 14
CLOSE_TIMEOUT_SECONDS = 1.0
"""Seconds in which connections are closed in order; then they are cut."""
DATABASE_UNAVAILABLE: tuple[type[Exception], ...] = (*TRANSIENT_CODES, DatabaseUnavailable)
"""Temporary errors: the same statement may succeed soon."""

log = structlog.get_logger(__name__)


class Database:
    """All database connections of a process. The composition root opens it once."""

    def __init__(
        self,
        dsn: str,
        listen_dsn: str,
        options: DatabaseOptions,
        pool: ConnectionPool,
        outages: OutageLog,
    ) -> None:
        self._dsn = dsn
        self._listen_dsn = listen_dsn
        self._options = options
        self._outages = outages
        self._begin = begin(options)
        self._begin_reading = begin(options, read_only=True)
        self.pool = pool

    @classmethod
    async def open(
        cls, url: str, options: DatabaseOptions, *, listen_url: str | None = None
    ) -> "Database":
        dsn = asyncpg_dsn(url)
        outages = OutageLog()
        pool = await open_pool(dsn, options, outages)
        listen_dsn = asyncpg_dsn(listen_url) if listen_url else dsn
        return cls(dsn, listen_dsn, options, pool, outages)

    async def close(self) -> None:
        """Wait for running statements up to the time-out, then close all connections."""
        await _close(self.pool, timeout=CLOSE_TIMEOUT_SECONDS)

    @asynccontextmanager
    async def transaction(self, *, by_key: bool = False) -> AsyncIterator[Connection]:
        """One unit of work: committed when the block ends, rolled back when it raises.

        `by_key`: all statements find their rows by key, so that each is planned once per connection.
        """
        async with _translated_errors(), self.pool.acquire_for_transaction() as driver:
            await driver.execute("BEGIN" if by_key else self._begin)
            yield Connection(cast(Driver, driver))
            await driver.execute("COMMIT")

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """For searches: a transaction in which each statement reads its own snapshot."""
        async with _translated_errors(), self.pool.acquire_for_transaction() as driver:
            await driver.execute(self._begin_reading)
            yield Connection(cast(Driver, driver))
            await driver.execute("COMMIT")

    @asynccontextmanager
    async def reading_by_key(self) -> AsyncIterator[Connection]:
        """For reads of a few rows by key: each statement is a transaction of its own, planned once."""
        async with _translated_errors(), self.pool.acquire() as driver:
            yield Connection(cast(Driver, driver))

    @asynccontextmanager
    async def queue_pool(self) -> AsyncIterator[QueuePool]:
        """The connections of the queue, which listens on one of them.

        A cancelled queue doesn't return that one, so closing the pool needs a time-out.
        """
        with self._recording_failures():
            pool = await asyncpg.create_pool(
                self._listen_dsn,
                min_size=2,
                max_size=QUEUE_CONNECTIONS,
                reset=keep,
                init=self._keep_alive,
                **connection_options(self._options, direct=True),
            )
            try:
                yield pool
            finally:
                await _close(pool, timeout=CLOSE_TIMEOUT_SECONDS)

    async def ping(self) -> None:
        """Raise one of `DATABASE_UNAVAILABLE` if the server doesn't answer or takes no writes."""
        if await self.pool.fetchval("SELECT current_setting('transaction_read_only') = 'on'"):
            self.pool.invalidate()
            raise DatabaseUnavailable("the server takes no writes", UnavailableReason.READ_ONLY)
        if (reason := self._outages.recent_failure()) is not None:
            raise DatabaseUnavailable(
                "it answers, but other statements failed a moment ago", reason
            )
        if self._outages.is_disk_full:
            await self._check_disk()

    async def _check_disk(self) -> None:
        try:
            async with self.transaction() as connection:
                await disk_check.allocate_pages(connection)
        except asyncpg.SyntaxOrAccessError as error:
            # This role may not create temporary tables: the next large write finds out.
            log.debug("disk_space_not_checked", error=str(error))
        self._outages.record_free_disk()

    async def listener(self) -> RawConnection:
        """A connection outside of the pools, for LISTEN or another event loop. The caller closes it."""
        with self._recording_failures():
            connection: RawConnection = await asyncpg.connect(
                self._listen_dsn, **connection_options(self._options, direct=True)
            )
            await self._keep_alive(connection)
        return connection

    async def _keep_alive(self, connection: RawConnection) -> None:
        keep_alive(connection, self._options.tcp_keepalive)

    @contextmanager
    def _recording_failures(self) -> Iterator[None]:
        try:
            yield
        except TRANSIENT_CODES as error:
            self._outages.record_failure(error)
            raise


@asynccontextmanager
async def _translated_errors() -> AsyncIterator[None]:
    """Translate temporary errors of the driver to `DatabaseUnavailable`."""
    try:
        yield
    except TRANSIENT_CODES as error:
        raise DatabaseUnavailable(str(error), reason_of(error)) from error


async def _close(pool: "ConnectionPool | QueuePool", *, timeout: float) -> None:
    """Close a pool once its statements are done, or cut its connections after the time-out."""
    try:
        async with asyncio.timeout(timeout):
            await pool.close()
    except TimeoutError:
        pool.terminate()
