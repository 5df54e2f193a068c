"""A pool of asyncpg connections with an acquire time-out and a maximum connection age.

A connection that is too old, or older than the last outage, is replaced when it is acquired: after a failover
it may lead to the wrong server.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import asyncpg

from app.domain.errors import DatabaseBusy, DatabaseUnavailable
from app.storage.postgres.errors import INVALIDATING_REASONS, TRANSIENT_CODES, OutageLog

RELEASE_TIMEOUT_SECONDS = 1.0
"""Seconds for the server to confirm a cancelled statement; then its connection is closed."""
INVALIDATE_INTERVAL_SECONDS = 1.0
KEEPALIVE_INTERVAL_SECONDS = 5
KEEPALIVE_COUNT = 3

Proxy: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"


_RECORDED: tuple[type[Exception], ...] = (*TRANSIENT_CODES, DatabaseUnavailable)


class TimedConnection(asyncpg.Connection):
    """A connection with the time at which it was opened."""

    __slots__ = ("opened_at",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.opened_at = asyncio.get_running_loop().time()


def keep_alive(connection: Any, idle: float) -> None:
    """Enable TCP keepalive, so that the system notices a connection that a network device has dropped."""
    transport = connection._transport  # noqa: SLF001  the driver shows its socket nowhere else
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    lost_after = idle + KEEPALIVE_INTERVAL_SECONDS * KEEPALIVE_COUNT
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", max(1, int(idle))),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", KEEPALIVE_COUNT),
        ("TCP_USER_TIMEOUT", int(lost_after * 1000)),
    ):
        # Not every system has all of them.
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


class ConnectionPool:
    """Executes statements on asyncpg connections.

    Transactions may use only a part of them. So single statements, which checkpoints and events are, always
    find a connection while transactions wait for locks.
    """

    def __init__(
        self,
        pool: "asyncpg.Pool[asyncpg.Record]",
        outages: OutageLog,
        *,
        transactions: int,
        timeout: float,
        lifetime: float,
    ) -> None:
        self._pool = pool
        self._outages = outages
        self._transactions = transactions
        self._free_transactions = asyncio.Semaphore(transactions)
        self._timeout = timeout
        self._lifetime = lifetime
        self._trusted_since = 0.0
        self._releasing: set[asyncio.Task[None]] = set()

    async def fetch(self, query: str, *args: object) -> list[asyncpg.Record]:
        async with ConnectionLease(self) as connection:
            return await connection.fetch(query, *args)

    async def fetchrow(self, query: str, *args: object) -> asyncpg.Record | None:
        async with ConnectionLease(self) as connection:
            return await connection.fetchrow(query, *args)

    async def fetchval(self, query: str, *args: object) -> Any:
        async with ConnectionLease(self) as connection:
            return await connection.fetchval(query, *args)

    async def execute(self, query: str, *args: object) -> str:
        async with ConnectionLease(self) as connection:
            return await connection.execute(query, *args)

    def acquire(self) -> "ConnectionLease":
        """Lease a connection; raises `DatabaseBusy` if none gets free in time."""
        return ConnectionLease(self)

    @asynccontextmanager
    async def acquire_for_transaction(self) -> "AsyncIterator[Proxy]":
        """Lease one of the connections for transactions; raises `DatabaseBusy` if none gets free in time."""
        await self._wait_for_transaction()
        try:
            async with ConnectionLease(self) as connection:
                yield connection
        finally:
            self._free_transactions.release()

    async def _wait_for_transaction(self) -> None:
        # Without a timer if one is free, because that is faster.
        if not self._free_transactions.locked():
            await self._free_transactions.acquire()
            return
        try:
            async with asyncio.timeout(self._timeout):
                await self._free_transactions.acquire()
        except TimeoutError:
            busy = DatabaseBusy(
                f"none of {self._transactions} connections for transactions got free in {self._timeout} s"
            )
            self.failed(busy)
            raise busy from None

    def invalidate(self) -> None:
        """Replace all connections that are open now. At most once per interval, so that new ones can be opened."""
        now = asyncio.get_running_loop().time()
        if now - self._trusted_since >= INVALIDATE_INTERVAL_SECONDS:
            self._trusted_since = now

    async def close(self) -> None:
        await self._pool.close()

    def terminate(self) -> None:
        self._pool.terminate()

    # --- for leases -----------------------------------------------------------------------------

    async def check_out(self) -> Proxy:
        pool = self._pool
        # Without a timer if a connection is idle, because that is faster.
        timeout = None if pool.get_idle_size() else self._timeout
        try:
            while True:
                connection: Proxy = await pool.acquire(timeout=timeout)
                if self._is_trusted(connection):
                    return connection
                connection.terminate()
                await pool.release(connection)
                timeout = self._timeout
        except TimeoutError:
            if pool.get_size() - pool.get_idle_size() >= pool.get_max_size():
                raise DatabaseBusy(
                    f"none of {pool.get_max_size()} connections got free in {self._timeout} s"
                ) from None
            raise

    async def check_in(self, connection: Proxy) -> None:
        await self._pool.release(connection)
        self._outages.record_success()

    async def give_back(self, connection: Proxy) -> None:
        """Release after a failure, in a task of its own, so that cancelling the caller doesn't stop it.

        An open transaction is rolled back.
        """
        task = asyncio.get_running_loop().create_task(self._release(connection))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)
        await asyncio.shield(task)

    def failed(self, error: BaseException) -> None:
        if (
            isinstance(error, _RECORDED)
            and self._outages.record_failure(error) in INVALIDATING_REASONS
        ):
            self.invalidate()

    def _is_trusted(self, connection: Proxy) -> bool:
        opened_at: float = connection.opened_at  # type: ignore[attr-defined]  # it is a `TimedConnection`
        oldest = asyncio.get_running_loop().time() - self._lifetime
        return opened_at > max(self._trusted_since, oldest)

    async def _release(self, connection: Proxy) -> None:
        try:
            if not connection.is_closed() and connection.is_in_transaction():
                await connection.execute("ROLLBACK", timeout=RELEASE_TIMEOUT_SECONDS)
        except TRANSIENT_CODES:
            # A connection that the server has closed is in the pool again already.
            with suppress(asyncpg.InterfaceError):
                connection.terminate()
        try:
            await self._pool.release(connection, timeout=RELEASE_TIMEOUT_SECONDS)
        except TRANSIENT_CODES:
            # The pool has closed the connection. The caller knows the error of its statement.
            return


class ConnectionLease:
    """One connection for the duration of a block."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def __aenter__(self) -> Proxy:
        try:
            self._connection = await self._pool.check_out()
        except BaseException as error:
            self._pool.failed(error)
            raise
        return self._connection

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            await self._pool.check_in(self._connection)
            return
        await self._pool.give_back(self._connection)
        self._pool.failed(error)
