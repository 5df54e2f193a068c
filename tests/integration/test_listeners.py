"""The listener of tests loses no connection, also if it closes while it accepts one."""

import asyncio
import gc
import socket

import pytest

from app.clock import yield_to_loop
from tests.support.listeners import Listener

pytestmark = pytest.mark.anyio

TIMEOUT_SECONDS = 15.0


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)


@pytest.mark.parametrize("turns", range(8))
async def test_a_connection_is_closed_at_each_moment_of_its_acceptance(turns: int) -> None:
    """`turns` is the number of turns of the event loop between the connection and the listener's end."""
    listener = Listener(_echo)
    with socket.create_connection(("127.0.0.1", listener.port), TIMEOUT_SECONDS) as client:
        for _ in range(turns):
            await yield_to_loop()
        await listener.close()
        try:
            assert await asyncio.to_thread(client.recv, 1) == b""
        except ConnectionResetError:
            pass  # not accepted
    # A socket that is left open fails the test here, by its ResourceWarning.
    gc.collect()


async def test_a_listener_serves_until_it_is_closed() -> None:
    listener = Listener(_echo)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"hello")
    assert await asyncio.wait_for(reader.readexactly(5), TIMEOUT_SECONDS) == b"hello"
    await listener.close()
    assert await asyncio.wait_for(reader.read(), TIMEOUT_SECONDS) == b""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", listener.port)
    writer.close()
    await writer.wait_closed()
