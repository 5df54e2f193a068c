"""The database of a process: one engine for statements, one raw pool for the hot ones."""

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
CLOSING = 1.0
"""Seconds for connections to be closed politely."""
DATABASE_UNAVAILABLE: tuple[type[Exception], ...] = (*TRANSIENT_CODES, DatabaseUnavailable)
"""What passes by itself: the same statement may succeed in a moment."""
_OF_THE_ENGINE: tuple[type[Exception], ...] = (DBAPIError, *TRANSIENT_CODES)

log = structlog.get_logger(__name__)

_NOTHING = text("SELECT")


class Database:
    """Opened once per process by the composition root; every connection of ours comes from here."""

    def __init__(
        self,
        dsn: str,
        listen_dsn: str,
        options: DatabaseOptions,
        engine: AsyncEngine,
        of_the_engine: WeakSet[RawConnection],
        hot: ConnectionPool,
        outages: OutageLog,
    ) -> None:
        self._dsn = dsn
        self._listen_dsn = listen_dsn
        self._options = options
        self._engine = engine
        self._of_the_engine = of_the_engine
        self._outages = outages
        self.pool = hot

    @classmethod
    async def open(
        cls, url: str, options: DatabaseOptions, *, listen_url: str | None = None
    ) -> "Database":
        dsn = asyncpg_dsn(url)
        outages = OutageLog()
        hot = await open_hot_pool(dsn, options, outages)
        of_the_engine: WeakSet[RawConnection] = WeakSet()
        engine = new_engine(dsn, options, of_the_engine)
        listen_dsn = asyncpg_dsn(listen_url) if listen_url else dsn
        return cls(dsn, listen_dsn, options, engine, of_the_engine, hot, outages)

    async def close(self) -> None:
        """See out what is under way, and leave what doesn't end in time."""
        # Closed by ourselves, all at once: the engine would wait for one after the other.
        await self._engine.dispose(close=False)
        async with asyncio.TaskGroup() as closing:
            closing.create_task(_close(self.pool, patience=CLOSING))
            for connection in self._of_the_engine:
                closing.create_task(_leave(connection))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """One unit of work: committed when the block ends, rolled back when it raises."""
        async with self._errors_of_ours():
            async with self._engine.begin() as connection:
                yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """For queries: each statement sees its own instant, no transaction stays open."""
        async with self._errors_of_ours():
            async with self._engine.connect() as connection:
                yield await connection.execution_options(isolation_level="AUTOCOMMIT")

    @asynccontextmanager
    async def queue_pool(self) -> AsyncIterator[QueuePool]:
        """A few connections for the queue, which listens on one of them.

        Cancelled on its way out, the queue keeps that one: a polite closing would wait for ever.
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
                await _close(pool, patience=CLOSING)

    async def ping(self) -> None:
        """Raises one of `DATABASE_AWAY` when the server doesn't answer, or doesn't let us work."""
        if await self.pool.fetchval("SELECT current_setting('transaction_read_only') = 'on'"):
            self.pool.invalidate()
            raise DatabaseUnavailable("the server takes no writes", UnavailableReason.READ_ONLY)
        if (reason := self._outages.recent_failure()) is not None:
            raise DatabaseUnavailable("it is there, and others have failed a moment ago", reason)
        if self._outages.lacks_room:
            await self._look_for_room()

    async def _look_for_room(self) -> None:
        try:
            async with self.transaction() as connection:
                await disk_check.allocate_pages(connection)
        except ProgrammingError as error:
            # We may make no temporary tables here: whoever needs room will find out.
            log.debug("room_not_looked_for", error=str(error.orig))
        self._outages.disk_has_room()

    async def listener(self) -> RawConnection:
        """A connection outside of the pools, for LISTEN or for another loop; whoever asked closes it."""
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
    async def _errors_of_ours(self) -> AsyncIterator[None]:
        """The engine wraps its driver's errors: unwrap those that pass by themselves."""
        try:
            yield
        except PoolTimeout as error:
            busy = DatabaseBusy(f"no connection got free in {self._options.pool_timeout} s")
            self._outages.record_failure(busy)
            raise busy from error
        except _OF_THE_ENGINE as error:
            cause = _cause_of(error)
            if cause is None:
                raise
            reason = self._outages.record_failure(cause)
            if reason in INVALIDATING_REASONS:
                self.pool.invalidate()
            raise DatabaseUnavailable(str(cause), reason) from error
        self._outages.record_success()


def _cause_of(error: BaseException) -> BaseException | None:
    """What the driver said, if that passes by itself."""
    if not isinstance(error, DBAPIError):
        return error
    cause = error.orig.__cause__ if error.orig is not None else None
    if isinstance(cause, TRANSIENT_CODES):
        return cause
    return DatabaseUnavailable(str(cause or error.orig)) if error.connection_invalidated else None


async def _close(pool: "ConnectionPool | QueuePool", *, patience: float) -> None:
    """See out what is under way, and cut what doesn't end in time."""
    try:
        async with asyncio.timeout(patience):
            await pool.close()
    except TimeoutError:
        pool.terminate()


async def _leave(connection: RawConnection) -> None:
    try:
        await connection.close(timeout=CLOSING)
    except TRANSIENT_CODES:
        connection.terminate()


async def raw(connection: Connection) -> RawConnection:
    """The driver's connection under a transaction: what is done on it commits or rolls back with that."""
    proxy = await connection.get_raw_connection()
    driver: RawConnection | None = proxy.driver_connection
    if driver is None:
        raise RuntimeError("the connection is closed")
    if not driver.is_in_transaction():
        # The first statement opens it; the driver's own wouldn't.
        await connection.execute(_NOTHING)
    return driver
