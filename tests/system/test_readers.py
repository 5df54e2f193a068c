"""Whoever reads a run through nginx hears each event once, in order, whatever breaks on either side of it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cutters import Cutter, cutting
from tests.support.readers import Heard
from tests.support.servers import Server
from tests.support.streams import Client, types_of
from tests.system.nginx import Nginx, proxying
from tests.system.readers import READERS

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa " * 6
EVERY = {"eventsource": 20, "eventsource-parser": 1, "httpx2": 3, "curl": 7}
"""An EventSource takes the two seconds for each new attempt that the server asks it to."""


@pytest.fixture
async def before(server: Server, tmp_path: Path) -> AsyncIterator[Cutter]:
    """Breaks what nginx sends to clients."""
    async with (
        proxying(Nginx(tmp_path / "nginx", [server.port])) as nginx,
        cutting(nginx.port) as cutter,
    ):
        yield cutter


@pytest.fixture
async def behind(server: Server, tmp_path: Path) -> AsyncIterator[tuple[Cutter, Nginx]]:
    """Breaks what servers send to nginx."""
    async with (
        cutting(server.port) as cutter,
        proxying(Nginx(tmp_path / "nginx", [cutter.port])) as nginx,
    ):
        yield cutter, nginx


async def hears_all(client: Client, base: str, reader: str, cutter: Cutter) -> None:
    started = await client.start("talker", WORDS)
    path = f"/v1/runs/{started['run_id']}"
    cutter.every = EVERY[reader]
    heard = await READERS[reader](f"{base}{path}/events", Heard())
    assert types_of(heard.events).count("text_delta") > 20, "it was to be cut while it spoke"
    assert heard.events == await client.log(path)
    assert heard.status == 204, "whoever comes back after the end is sent home"
    assert heard.connections == cutter.cuts + 1 > 2


@pytest.mark.parametrize("reader", READERS)
async def test_a_reader_that_is_cut_off_hears_the_rest(
    client: Client, before: Cutter, reader: str
) -> None:
    await hears_all(client, before.base, reader, before)


@pytest.mark.parametrize("reader", READERS)
async def test_a_server_that_is_cut_off_is_heard_to_the_end(
    client: Client, behind: tuple[Cutter, Nginx], reader: str
) -> None:
    cutter, nginx = behind
    await hears_all(client, nginx.base, reader, cutter)


async def test_all_at_once_hear_the_same(client: Client, before: Cutter) -> None:
    started = await client.start("talker", WORDS)
    path = f"/v1/runs/{started['run_id']}"
    before.every = 30
    url = f"{before.base}{path}/events"
    heard = await asyncio.gather(*(read(url, Heard()) for read in READERS.values()))
    log = await client.log(path)
    assert [one.events for one in heard] == [log] * len(READERS)
