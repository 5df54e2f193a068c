"""The database of a process: an engine for most statements, an asyncpg pool for the hot ones."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeAlias
from weakref import WeakSet

import asyncpg
import structlog
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.domain.errors import DatabaseBusy, DatabaseUnavailable, UnavailableReason
from app.storage.postgres import disk_check
from app.storage.postgres.connect import (
    QUEUE_CONNECTIONS,
    DatabaseOptions,
    QueuePool,
    RawConnection,
    connection_options,
    keep,
    new_engine,
    open_hot_pool,
)
from app.storage.postgres.errors import INVALIDATING_REASONS, TRANSIENT_CODES, OutageLog
from app.storage.postgres.pool import ConnectionPool, keep_alive
from app.storage.postgres.urls import asyncpg_dsn

Connection: TypeAlias = AsyncConnection
RawPool: TypeAlias = ConnectionPool

OLDEST_SERVER = 14
CLOSE_TIMEOUT_SECONDS = 1.0
"""Seconds in which connections are closed in order; then they are cut."""
DATABASE_UNAVAILABLE: tuple[type[Exception], ...] = (*TRANSIENT_CODES, DatabaseUnavailable)
"""Temporary errors: the same statement may succeed soon."""
_ENGINE_ERRORS: tuple[type[Exception], ...] = (DBAPIError, *TRANSIENT_CODES)

log = structlog.get_logger(__name__)

_EMPTY_QUERY = text("SELECT")


class Database:
    """All database connections of a process. The composition root opens it once."""

    def __init__(
        self,
        dsn: str,
        listen_dsn: str,
        options: DatabaseOptions,
        engine: AsyncEngine,
        engine_connections: WeakSet[RawConnection],
        pool: ConnectionPool,
        outages: OutageLog,
    ) -> None:
        self._dsn = dsn
        self._listen_dsn = listen_dsn
        self._options = options
        self._engine = engine
        self._engine_connections = engine_connections
        self._outages = outages
        self.pool = pool

    @classmethod
    async def open(
        cls, url: str, options: DatabaseOptions, *, listen_url: str | None = None
    ) -> "Database":
        dsn = asyncpg_dsn(url)
        outages = OutageLog()
        pool = await open_hot_pool(dsn, options, outages)
        engine_connections: WeakSet[RawConnection] = WeakSet()
        engine = new_engine(dsn, options, engine_connections)
        listen_dsn = asyncpg_dsn(listen_url) if listen_url else dsn
        return cls(dsn, listen_dsn, options, engine, engine_connections, pool, outages)

    async def close(self) -> None:
        """Wait for running statements up to the time-out, then close all connections."""
        # All are closed in parallel below: the engine would close one after the other.
        await self._engine.dispose(close=False)
        async with asyncio.TaskGroup() as closing:
            closing.create_task(_close(self.pool, timeout=CLOSE_TIMEOUT_SECONDS))
            for connection in self._engine_connections:
                closing.create_task(_close_connection(connection))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """One unit of work: committed when the block ends, rolled back when it raises."""
        async with self._translated_errors():
            async with self._engine.begin() as connection:
                yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """For queries: each statement reads its own snapshot, and no transaction stays open."""
        async with self._translated_errors():
            async with self._engine.connect() as connection:
                yield await connection.execution_options(isolation_level="AUTOCOMMIT")

    @asynccontextmanager
    async def queue_pool(self) -> AsyncIterator[QueuePool]:
        """The connections of the queue, which listens on one of them.

        A cancelled queue doesn't return that one, so closing the pool needs a time-out.
        """
        with self._noting_failures():
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
        except ProgrammingError as error:
            # This role may not create temporary tables: the next large write finds out.
            log.debug("disk_not_checked", error=str(error.orig))
        self._outages.record_free_disk()

    async def listener(self) -> RawConnection:
        """A connection outside of the pools, for LISTEN or another event loop. The caller closes it."""
        with self._noting_failures():
            connection: RawConnection = await asyncpg.connect(
                self._listen_dsn, **connection_options(self._options, direct=True)
            )
            await self._keep_alive(connection)
        return connection

    async def _keep_alive(self, connection: RawConnection) -> None:
        keep_alive(connection, self._options.tcp_keepalive)

    @contextmanager
    def _noting_failures(self) -> Iterator[None]:
        try:
            yield
        except TRANSIENT_CODES as error:
            self._outages.record_failure(error)
            raise

    @asynccontextmanager
    async def _translated_errors(self) -> AsyncIterator[None]:
        """Translate temporary errors, which the engine wraps, to `DatabaseUnavailable`."""
        try:
            yield
        except PoolTimeout as error:
            busy = DatabaseBusy(f"no connection got free in {self._options.pool_timeout} s")
            self._outages.record_failure(busy)
            raise busy from error
        except _ENGINE_ERRORS as error:
            cause = _cause_of(error)
            if cause is None:
                raise
            reason = self._outages.record_failure(cause)
            if reason in INVALIDATING_REASONS:
                self.pool.invalidate()
            raise DatabaseUnavailable(str(cause), reason) from error
        self._outages.record_success()


def _cause_of(error: BaseException) -> BaseException | None:
    """The driver's error, if it is temporary."""
    if not isinstance(error, DBAPIError):
        return error
    cause = error.orig.__cause__ if error.orig is not None else None
    if isinstance(cause, TRANSIENT_CODES):
        return cause
    return DatabaseUnavailable(str(cause or error.orig)) if error.connection_invalidated else None


async def _close(pool: "ConnectionPool | QueuePool", *, timeout: float) -> None:
    """Close a pool once its statements are done, or cut its connections after the time-out."""
    try:
        async with asyncio.timeout(timeout):
            await pool.close()
    except TimeoutError:
        pool.terminate()


async def _close_connection(connection: RawConnection) -> None:
    try:
        await connection.close(timeout=CLOSE_TIMEOUT_SECONDS)
    except TRANSIENT_CODES:
        connection.terminate()


async def raw(connection: Connection) -> RawConnection:
    """The driver's connection of a transaction. Its statements are part of the transaction."""
    proxy = await connection.get_raw_connection()
    driver: RawConnection | None = proxy.driver_connection
    if driver is None:
        raise RuntimeError("the connection is closed")
    if not driver.is_in_transaction():
        # The engine begins the transaction at its first statement; a statement of the driver wouldn't.
        await connection.execute(_EMPTY_QUERY)
    return driver
