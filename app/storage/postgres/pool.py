"""The pool of raw connections: nobody waits for one without end, and none is believed for ever.

A connection that has become too old, or was opened before the server fell silent or read-only, is
replaced when somebody asks for it: after a failover it may lead to the wrong place, or to none.
"""

import asyncio
import socket
from typing import Any, TypeAlias

import asyncpg

from app.domain.errors import DatabaseBusy, DatabaseUnavailable
from app.storage.postgres.errors import INVALIDATING_REASONS, TRANSIENT_CODES, OutageLog

RELEASE_TIMEOUT_SECONDS = 1.0
"""Seconds for a statement that was broken off to be acknowledged; then its connection is given up."""
INVALIDATE_INTERVAL_SECONDS = 1.0
KEEPALIVE_INTERVAL = 5
KEEPALIVE_COUNT = 3

Proxy: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"


_TELLING: tuple[type[Exception], ...] = (*TRANSIENT_CODES, DatabaseUnavailable)


class OurConnection(asyncpg.Connection):
    """A connection that knows when it was opened."""

    __slots__ = ("opened_at",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.opened_at = asyncio.get_running_loop().time()


def keep_alive(connection: Any, idle: float) -> None:
    """Have the system ask now and then whether the other side is still there, and give up when it isn't.

    Neither side of a connection that a network device has forgotten would ever hear of it.
    """
    transport = connection._transport  # noqa: SLF001  the driver shows its socket nowhere else
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    patience = idle + KEEPALIVE_INTERVAL * KEEPALIVE_COUNT
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", max(1, int(idle))),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL),
        ("TCP_KEEPCNT", KEEPALIVE_COUNT),
        ("TCP_USER_TIMEOUT", int(patience * 1000)),
    ):
        # Not every system has all of them.
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


class ConnectionPool:
    """Statements over raw connections, each with an end in sight."""

    def __init__(
        self,
        pool: "asyncpg.Pool[asyncpg.Record]",
        outages: OutageLog,
        *,
        patience: float,
        lifetime: float,
    ) -> None:
        self._pool = pool
        self._outages = outages
        self._patience = patience
        self._lifetime = lifetime
        self._believed_since = 0.0
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
        """A connection of one's own for a while; raises `DatabaseBusy` when none gets free in time."""
        return ConnectionLease(self)

    def invalidate(self) -> None:
        """Open new connections from now on instead of those that are there; not more often than they
        can be opened, while the place stays wrong."""
        now = asyncio.get_running_loop().time()
        if now - self._believed_since >= INVALIDATE_INTERVAL_SECONDS:
            self._believed_since = now

    async def close(self) -> None:
        await self._pool.close()

    def terminate(self) -> None:
        self._pool.terminate()

    # --- for leases -----------------------------------------------------------------------------

    async def check_out(self) -> Proxy:
        pool = self._pool
        # Whoever finds one that is idle need not be timed.
        patience = None if pool.get_idle_size() else self._patience
        try:
            while True:
                connection: Proxy = await pool.acquire(timeout=patience)
                if self._is_believed(connection):
                    return connection
                connection.terminate()
                await pool.release(connection)
                patience = self._patience
        except TimeoutError:
            if pool.get_size() - pool.get_idle_size() >= pool.get_max_size():
                raise DatabaseBusy(
                    f"none of {pool.get_max_size()} connections got free in {self._patience} s"
                ) from None
            raise

    async def check_in(self, connection: Proxy) -> None:
        await self._pool.release(connection)
        self._outages.record_success()

    async def give_back(self, connection: Proxy) -> None:
        """After a failure, in a task of its own: whoever is cancelled meanwhile leaves nothing undone."""
        task = asyncio.get_running_loop().create_task(self._release(connection))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)
        await asyncio.shield(task)

    def failed(self, error: BaseException) -> None:
        if (
            isinstance(error, _TELLING)
            and self._outages.record_failure(error) in INVALIDATING_REASONS
        ):
            self.invalidate()

    def _is_believed(self, connection: Proxy) -> bool:
        opened_at: float = connection.opened_at  # type: ignore[attr-defined]  # it is an `OurConnection`
        oldest = asyncio.get_running_loop().time() - self._lifetime
        return opened_at > max(self._believed_since, oldest)

    async def _release(self, connection: Proxy) -> None:
        try:
            await self._pool.release(connection, timeout=RELEASE_TIMEOUT_SECONDS)
        except TRANSIENT_CODES:
            # The pool has given it up: what its statement came to, its caller knows.
            return


class ConnectionLease:
    """One connection for as long as a block lasts."""

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
