"""The open connections of a pool: those that are in use, and those that wait for the next statement.

The driver's own pool starts a task and moves a timer for each release, which takes as much CPU as a statement.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

UNUSED_SECONDS = 600.0
"""A connection that wasn't used for so long is closed."""
_CHECK_INTERVAL_SECONDS = 60.0


class TimedConnection(asyncpg.Connection):
    """A connection with the times at which it was opened and last used."""

    __slots__ = ("opened_at", "used_at")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.opened_at = self.used_at = asyncio.get_running_loop().time()


class OpenConnections:
    """At most `max_size` connections. Each has one user at a time, from its acquisition to its release."""

    def __init__(self, open_one: Callable[[], Awaitable[TimedConnection]], max_size: int) -> None:
        self.max_size = max_size
        self._open_one = open_one
        self._idle: list[TimedConnection] = []
        """Ordered by last use. The last is used next. It is empty while users wait."""
        self._in_use: set[TimedConnection] = set()
        self._opening = 0
        self._waiters: deque[asyncio.Future[TimedConnection | None]] = deque()
        """A waiter gets the next connection that is released, or None: it may open one."""
        self._is_closed = False
        self._all_released = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def are_all_in_use(self) -> bool:
        return len(self._in_use) + self._opening >= self.max_size

    async def open(self, number: int) -> None:
        """Open the first connections."""
        first = [await self.acquire() for _ in range(number)]
        for connection in first:
            self.release(connection)
        self._close_unused()

    def take_idle(self) -> TimedConnection | None:
        """The idle connection that was used last; None if there is none."""
        while self._idle and not self._is_closed:
            connection = self._idle.pop()
            if not connection.is_closed():
                self._in_use.add(connection)
                return connection
        return None

    async def acquire(self) -> TimedConnection:
        """An idle connection, or a new one, or the next that is released."""
        if self._is_closed:
            raise asyncpg.InterfaceError("the pool is closed")
        if (connection := self.take_idle()) is not None:
            return connection
        if not self.are_all_in_use:
            self._opening += 1
            return await self._opened()
        return await self._next_released() or await self._opened()

    def release(self, connection: TimedConnection) -> None:
        """Give back a connection. If it is closed, a new one may be opened in its place."""
        if connection.is_closed():
            self._in_use.discard(connection)
            self._offer_place()
        elif (waiter := self._next_waiter()) is not None:
            waiter.set_result(connection)
        else:
            self._in_use.discard(connection)
            connection.used_at = asyncio.get_running_loop().time()
            self._idle.append(connection)
        self._note_last_release()

    async def close(self) -> None:
        """Wait until all connections are released, then close them."""
        self._refuse_users()
        if self._in_use or self._opening:
            await self._all_released.wait()
        for connection in self._idle:
            await connection.close()

    def terminate(self) -> None:
        """Cut all connections."""
        self._refuse_users()
        for connection in (*self._idle, *self._in_use):
            connection.terminate()

    def _refuse_users(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(asyncpg.InterfaceError("the pool is closed"))

    async def _opened(self) -> TimedConnection:
        """Open a connection. The caller has counted it in `_opening`."""
        try:
            connection = await self._open_one()
        except BaseException:
            self._pass_on(None)
            raise
        self._opening -= 1
        self._in_use.add(connection)
        return connection

    async def _next_released(self) -> TimedConnection | None:
        """The next connection that is released; None if the caller may open one, which is counted."""
        waiter: asyncio.Future[TimedConnection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._pass_on(waiter.result())
            raise

    def _pass_on(self, given: TimedConnection | None) -> None:
        """Give what a user got, but can't use, to the next one: a connection, or the place for one."""
        if given is not None:
            self.release(given)
            return
        self._opening -= 1
        self._offer_place()
        self._note_last_release()

    def _offer_place(self) -> None:
        """Let the next user open a connection."""
        if not self._is_closed and (waiter := self._next_waiter()) is not None:
            self._opening += 1
            waiter.set_result(None)

    def _next_waiter(self) -> "asyncio.Future[TimedConnection | None] | None":
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    def _note_last_release(self) -> None:
        if self._is_closed and not self._in_use and not self._opening:
            self._all_released.set()

    def _close_unused(self) -> None:
        """Close the connections that weren't used for long."""
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0].used_at < loop.time() - UNUSED_SECONDS:
            self._idle.pop(0).terminate()
        self._timer = loop.call_later(_CHECK_INTERVAL_SECONDS, self._close_unused)
