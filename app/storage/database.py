"""The database of a process: one engine for statements, one raw pool for the hot ones."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeAlias
from weakref import WeakSet

import asyncpg
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.domain.errors import DatabaseAway, DatabaseBusy, Reason
from app.storage.connecting import (
    QUEUE_CONNECTIONS,
    DatabaseOptions,
    QueuePool,
    RawConnection,
    connection_options,
    keep,
    new_engine,
    open_hot_pool,
)
from app.storage.database_urls import asyncpg_dsn
from app.storage.hot_pool import HotPool, keep_alive
from app.storage.outages import DISTRUSTED, PASSING, Outages

Connection: TypeAlias = AsyncConnection
RawPool: TypeAlias = HotPool

OLDEST_SERVER = 14
CLOSING = 1.0
"""Seconds for connections to be closed politely."""
DATABASE_AWAY: tuple[type[Exception], ...] = (*PASSING, DatabaseAway)
"""What passes by itself: the same statement may succeed in a moment."""
_OF_THE_ENGINE: tuple[type[Exception], ...] = (DBAPIError, *PASSING)
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
        hot: HotPool,
        outages: Outages,
    ) -> None:
        self._dsn = dsn
        self._listen_dsn = listen_dsn
        self._options = options
        self._engine = engine
        self._of_the_engine = of_the_engine
        self._outages = outages
        self.hot = hot

    @classmethod
    async def open(
        cls, url: str, options: DatabaseOptions, *, listen_url: str | None = None
    ) -> "Database":
        dsn = asyncpg_dsn(url)
        outages = Outages()
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
            closing.create_task(_close(self.hot, patience=CLOSING))
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
        if await self.hot.fetchval("SELECT current_setting('transaction_read_only') = 'on'"):
            self.hot.distrust()
            raise DatabaseAway("the server takes no writes", Reason.READ_ONLY)
        if (reason := self._outages.lately()) is not None:
            raise DatabaseAway("it is there, and others have failed a moment ago", reason)

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
        except PASSING as error:
            self._outages.failed(error)
            raise

    @asynccontextmanager
    async def _errors_of_ours(self) -> AsyncIterator[None]:
        """The engine wraps its driver's errors: unwrap those that pass by themselves."""
        try:
            yield
        except PoolTimeout as error:
            busy = DatabaseBusy(f"no connection got free in {self._options.pool_timeout} s")
            self._outages.failed(busy)
            raise busy from error
        except _OF_THE_ENGINE as error:
            cause = _cause_of(error)
            if cause is None:
                raise
            reason = self._outages.failed(cause)
            if reason in DISTRUSTED:
                self.hot.distrust()
            raise DatabaseAway(str(cause), reason) from error
        self._outages.worked()


def _cause_of(error: BaseException) -> BaseException | None:
    """What the driver said, if that passes by itself."""
    if not isinstance(error, DBAPIError):
        return error
    cause = error.orig.__cause__ if error.orig is not None else None
    if isinstance(cause, PASSING):
        return cause
    return DatabaseAway(str(cause or error.orig)) if error.connection_invalidated else None


async def _close(pool: "HotPool | QueuePool", *, patience: float) -> None:
    """See out what is under way, and cut what doesn't end in time."""
    try:
        async with asyncio.timeout(patience):
            await pool.close()
    except TimeoutError:
        pool.terminate()


async def _leave(connection: RawConnection) -> None:
    try:
        await connection.close(timeout=CLOSING)
    except PASSING:
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
