"""A pool of asyncpg connections with an acquire time-out and a maximum connection age.

A connection that is too old, or older than the last outage, is replaced when it is acquired: after a failover
it may lead to the wrong server.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from app.domain.errors import DatabaseBusy, DatabaseUnavailable
from app.storage.postgres.errors import INVALIDATING_REASONS, TRANSIENT_CODES, OutageLog
from app.storage.postgres.open_connections import OpenConnections, TimedConnection

RELEASE_TIMEOUT_SECONDS = 1.0
"""Seconds for the server to confirm a cancelled statement; then its connection is closed."""
INVALIDATE_INTERVAL_SECONDS = 1.0
KEEPALIVE_INTERVAL_SECONDS = 5
KEEPALIVE_COUNT = 3
NOTHING = "SELECT"
"""A statement of the pool itself, after one that failed or was given up."""

_RECORDED: tuple[type[Exception], ...] = (*TRANSIENT_CODES, DatabaseUnavailable)


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
        connections: OpenConnections,
        outages: OutageLog,
        *,
        transactions: int,
        timeout: float,
        lifetime: float,
    ) -> None:
        self._connections = connections
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
    async def acquire_for_transaction(self) -> AsyncIterator[TimedConnection]:
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
        await self._connections.close()

    def terminate(self) -> None:
        self._connections.terminate()

    # --- for leases -----------------------------------------------------------------------------

    async def check_out(self) -> TimedConnection:
        # Without a timer if a connection is idle, because that is faster.
        connection = self._connections.take_idle()
        if connection is not None and self._is_trusted(connection):
            return connection
        try:
            async with asyncio.timeout(self._timeout):
                while connection is None or not self._is_trusted(connection):
                    if connection is not None:
                        connection.terminate()
                        self.check_in(connection)
                    connection = await self._connections.acquire()
                return connection
        except TimeoutError:
            if self._connections.are_all_in_use:
                max_size = self._connections.max_size
                raise DatabaseBusy(
                    f"none of {max_size} connections got free in {self._timeout} s"
                ) from None
            raise

    def check_in(self, connection: TimedConnection) -> None:
        self._connections.release(connection)

    async def give_back(self, connection: TimedConnection) -> None:
        """Release after a failure, in a task of its own, so that cancelling the caller doesn't stop it.

        A transaction that is still open is ended.
        """
        task = asyncio.get_running_loop().create_task(self._release(connection))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)
        await asyncio.shield(task)

    def succeeded(self) -> None:
        self._outages.record_success()

    def failed(self, error: BaseException) -> None:
        if (
            isinstance(error, _RECORDED)
            and self._outages.record_failure(error) in INVALIDATING_REASONS
        ):
            self.invalidate()

    def _is_trusted(self, connection: TimedConnection) -> bool:
        oldest = asyncio.get_running_loop().time() - self._lifetime
        return connection.opened_at > max(self._trusted_since, oldest)

    async def _release(self, connection: TimedConnection) -> None:
        """Release a connection whose last statement may still be executing, or whose transaction is open."""
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_SECONDS):
                await _end_transaction(connection)
        except BaseException as error:
            connection.terminate()
            if not isinstance(error, TRANSIENT_CODES):
                raise
        finally:
            self.check_in(connection)


async def _end_transaction(connection: TimedConnection) -> None:
    """End what a statement that failed or was given up has left open.

    A statement that was given up while it was prepared leaves its implicit transaction open, with a snapshot, and
    the driver doesn't know of it. The next transaction would be the same one, and could choose no isolation level.
    """
    if connection.is_closed():
        return
    # Any statement of its own ends an implicit transaction. It also waits until the server has cancelled the statement
    # before, which may have been a BEGIN.
    if not connection.is_in_transaction():
        await connection.execute(NOTHING)
    if connection.is_in_transaction():
        await connection.execute("ROLLBACK")


class ConnectionLease:
    """One connection for the duration of a block."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def __aenter__(self) -> TimedConnection:
        try:
            self._connection = await self._pool.check_out()
        except BaseException as error:
            self._pool.failed(error)
            raise
        return self._connection

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self._pool.check_in(self._connection)
            self._pool.succeeded()
            return
        await self._pool.give_back(self._connection)
        self._pool.failed(error)
