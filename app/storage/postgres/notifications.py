"""NOTIFY and LISTEN: hints between processes. A lost hint does no harm.

Transactions with a NOTIFY commit one after the other in the whole database. So hints are sent after the
commit, in statements that write nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import asyncpg

from app.storage.postgres.database import Database, RawPool

MAX_PAYLOAD_BYTES = 7_900
_NOTIFY = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"


async def notify(pool: RawPool, channel: str, payloads: Sequence[str]) -> None:
    """Send hints to all processes that listen, including this one."""
    await pool.execute(_NOTIFY, channel, payloads)


async def listen(
    database: Database,
    channels: Mapping[str, Callable[[str], None]],
    *,
    on_connected: Callable[[], None],
) -> None:
    """Pass each hint to its channel's handler until the connection is lost.

    `on_connected` runs once listening has begun. Earlier events must be read from the log.
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
    """Test the connection at intervals: a half-open one reports no loss.

    `asyncio.wait_for` would lose a cancellation that comes together with the loss.
    """
    while not lost.is_set():
        try:
            async with asyncio.timeout(10):
                await lost.wait()
        except TimeoutError:
            async with asyncio.timeout(5):
                await connection.execute("SELECT 1")


def _payload_to(handle: Callable[[str], None]) -> Callable[..., None]:
    def received(_connection: object, _pid: int, _channel: str, payload: object) -> None:
        handle(str(payload))

    return received


_INSTALLATION = """
SELECT md5(system_identifier::text || '/' || current_database()) FROM pg_control_system()
"""


async def installation(pool: RawPool) -> str:
    """A name that identifies this database, the same for all processes that use it."""
    try:
        name = await pool.fetchval(_INSTALLATION)
    except asyncpg.InsufficientPrivilegeError:
        name = await pool.fetchval("SELECT md5(current_database())")
    return str(name)[:16]
