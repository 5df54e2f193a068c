"""The memory of a server process while files go through it: as much for a large file as for a small one."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from tests.support.servers import Server
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

SIZE = 20_000_000
PIECE = Random(1).randbytes(65_536)
MAX_GROWTH = SIZE // 2
"""Of the process. The whole file in memory, even once, would be twice as much."""


async def pieces(size: int) -> AsyncIterator[bytes]:
    left = size
    while left:
        piece = PIECE[: min(left, len(PIECE))]
        left -= len(piece)
        yield piece


class Memory:
    """The resident memory of a process, and its peak since the last reset."""

    def __init__(self, pid: int) -> None:
        self._process = Path("/proc") / str(pid)

    def reset(self) -> None:
        (self._process / "clear_refs").write_text("5")

    def bytes_of(self, field: str) -> int:
        for line in (self._process / "status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
        raise LookupError(field)


async def up_and_down(client: Client, size: int) -> None:
    response = await client.http.post(
        "/v1/files", content=pieces(size), headers={"Content-Type": "application/x-data"}
    )
    assert response.status_code == 201, response.text
    address = f"/v1/files/{response.json()['id']}/content"
    received = 0
    async with client.http.stream("GET", address) as download:
        async for piece in download.aiter_bytes():
            received += len(piece)
    assert received == size


async def test_a_large_file_goes_through_a_server_in_constant_memory(
    server: Server, client: Client
) -> None:
    memory = Memory(server.pid)
    # The first file imports what files need, and fills the pools of connections.
    await up_and_down(client, 2_000_000)
    before = memory.bytes_of("VmRSS")
    memory.reset()
    for _ in range(3):
        await up_and_down(client, SIZE)
    growth = memory.bytes_of("VmHWM") - before
    assert growth < MAX_GROWTH, f"{growth / 1e6:.1f} MB for files of {SIZE / 1e6:.0f} MB"
