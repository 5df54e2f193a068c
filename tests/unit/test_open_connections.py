"""Open connections have one user at a time, and none of their places is lost."""

import asyncio
from typing import Any, cast

import asyncpg
import pytest

from app.clock import yield_to_loop
from app.storage.postgres.open_connections import OpenConnections, TimedConnection

pytestmark = pytest.mark.anyio


class Opened:
    """What the pool needs of a connection."""

    def __init__(self) -> None:
        self.used_at = 0.0
        self.closed = False

    def is_closed(self) -> bool:
        return self.closed

    def terminate(self) -> None:
        self.closed = True

    async def close(self) -> None:
        self.closed = True


class Server:
    """Opens connections, or fails."""

    def __init__(self, *, max_size: int) -> None:
        self.opened: list[Opened] = []
        self.fails = False
        self.connections = OpenConnections(self._open, max_size)

    async def _open(self) -> TimedConnection:
        await yield_to_loop()
        if self.fails:
            raise OSError("refused")
        self.opened.append(Opened())
        return cast(TimedConnection, self.opened[-1])


async def waiting(connections: OpenConnections) -> "asyncio.Task[Any]":
    """A user that waits for a connection."""
    task = asyncio.get_running_loop().create_task(connections.acquire())
    for _ in range(5):
        await yield_to_loop()
    assert not task.done()
    return task


async def test_the_connection_used_last_is_used_next() -> None:
    connections = Server(max_size=2).connections
    first, second = await connections.acquire(), await connections.acquire()
    connections.release(first)
    connections.release(second)
    assert await connections.acquire() is second
    assert connections.take_idle() is first
    assert connections.take_idle() is None


async def test_users_get_released_connections_in_turn() -> None:
    server = Server(max_size=1)
    connections = server.connections
    taken = await connections.acquire()
    first, second = await waiting(connections), await waiting(connections)
    connections.release(taken)
    assert await first is taken
    assert not second.done()
    connections.release(taken)
    assert await second is taken
    assert len(server.opened) == 1


async def test_a_cancelled_user_passes_its_connection_on() -> None:
    connections = Server(max_size=1).connections
    taken = await connections.acquire()
    cancelled, other = await waiting(connections), await waiting(connections)
    connections.release(taken)
    cancelled.cancel()
    assert await other is taken


async def test_a_user_that_was_cancelled_while_it_waited_gets_nothing() -> None:
    connections = Server(max_size=1).connections
    taken = await connections.acquire()
    cancelled = await waiting(connections)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    connections.release(taken)
    assert connections.take_idle() is taken


async def test_a_waiting_user_opens_a_connection_in_the_place_of_a_closed_one() -> None:
    connections = Server(max_size=1).connections
    taken = await connections.acquire()
    other = await waiting(connections)
    taken.terminate()
    connections.release(taken)
    assert await other is not taken


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_place_whose_user_opened_nothing_is_free_again(is_cancelled: bool) -> None:
    server = Server(max_size=1)
    connections = server.connections
    taken = await connections.acquire()
    unlucky, other = await waiting(connections), await waiting(connections)
    server.fails = not is_cancelled
    taken.terminate()
    connections.release(taken)
    if is_cancelled:
        unlucky.cancel()
    with pytest.raises((OSError, asyncio.CancelledError)):
        await unlucky
    server.fails = False
    assert await other is not taken
    assert connections.are_all_in_use


async def test_an_idle_connection_that_the_server_closed_is_not_used() -> None:
    connections = Server(max_size=1).connections
    taken = await connections.acquire()
    connections.release(taken)
    taken.terminate()
    assert connections.take_idle() is None
    assert await connections.acquire() is not taken


async def test_closing_waits_until_the_last_connection_is_released() -> None:
    server = Server(max_size=2)
    connections = server.connections
    taken, idle = await connections.acquire(), await connections.acquire()
    connections.release(idle)
    closing = asyncio.get_running_loop().create_task(connections.close())
    await yield_to_loop()
    with pytest.raises(asyncpg.InterfaceError):
        await connections.acquire()
    assert not taken.is_closed()
    connections.release(taken)
    await closing
    assert all(one.closed for one in server.opened)


async def test_waiting_users_are_refused_when_all_connections_are_cut() -> None:
    connections = Server(max_size=1).connections
    taken = await connections.acquire()
    other = await waiting(connections)
    connections.terminate()
    with pytest.raises(asyncpg.InterfaceError):
        await other
    assert taken.is_closed()
