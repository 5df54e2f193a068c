"""NOTIFY and LISTEN: hints between processes, which may be lost without harm.

A NOTIFY inside a transaction that writes makes all commits of the database wait for each other, so
hints are sent afterwards, in statements that write nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import asyncpg

from app.storage.postgres.database import Database, RawPool

LARGEST_PAYLOAD = 7_900
_NOTIFY = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"


async def notify(pool: RawPool, channel: str, payloads: Sequence[str]) -> None:
    """Send hints to whoever listens, this process included."""
    await pool.execute(_NOTIFY, channel, payloads)


async def listen(
    database: Database,
    channels: Mapping[str, Callable[[str], None]],
    *,
    on_connected: Callable[[], None],
) -> None:
    """Hand each hint to its channel's handler until the connection is lost.

    `on_connected` runs once listening has begun: what happened before must be read from the log.
    """
    connection = await database.listener()
    lost = asyncio.Event()
    connection.add_termination_listener(lambda *_: lost.set())
    try:
        for channel, handle in channels.items():
            await connection.add_listener(channel, _payload_to(handle))
        on_connected()
        await _until_lost(connection, lost)
    finally:
        connection.terminate()


async def _until_lost(connection: "asyncpg.Connection[Any]", lost: asyncio.Event) -> None:
    """A half-open connection says nothing: ask it now and then."""
    while not lost.is_set():
        try:
            await asyncio.wait_for(lost.wait(), timeout=10)
        except TimeoutError:
            await asyncio.wait_for(connection.execute("SELECT 1"), timeout=5)


def _payload_to(handle: Callable[[str], None]) -> Callable[..., None]:
    def received(_connection: object, _pid: int, _channel: str, payload: object) -> None:
        handle(str(payload))

    return received


_INSTALLATION = """
SELECT md5(system_identifier::text || '/' || current_database()) FROM pg_control_system()
"""


async def installation(pool: RawPool) -> str:
    """A name that all processes on this database find, and those on another one don't."""
    try:
        name = await pool.fetchval(_INSTALLATION)
    except asyncpg.InsufficientPrivilegeError:
        name = await pool.fetchval("SELECT md5(current_database())")
    return str(name)[:16]
