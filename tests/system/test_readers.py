"""Readers behind nginx receive each event once and in order, although connections break on both sides."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cutters import Cutter, cutting
from tests.support.readers import Received
from tests.support.servers import Server
from tests.support.streams import Client, types_of
from tests.system.nginx import Nginx, proxying
from tests.system.readers import READERS

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa " * 6
EVERY = {"eventsource": 20, "eventsource-parser": 1, "httpx2": 3, "curl": 7}
"""An EventSource waits two seconds before each reconnect, as the server asks."""


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


async def receives_all(client: Client, base: str, reader: str, cutter: Cutter) -> None:
    started = await client.start("talker", WORDS)
    path = f"/v1/runs/{started['id']}"
    cutter.every = EVERY[reader]
    received = await READERS[reader](f"{base}{path}/events?include=state,trace", Received())
    assert types_of(received.events).count("text_delta") > 20, (
        "the stream was not cut while the run streamed"
    )
    assert received.events == await client.log(path)
    assert received.status == 204, "a reconnect after the end is answered 204"
    assert received.connections == cutter.cuts + 1 > 2


@pytest.mark.parametrize("reader", READERS)
async def test_a_reader_cut_off_from_nginx_receives_all_events(
    client: Client, before: Cutter, reader: str
) -> None:
    await receives_all(client, before.base, reader, before)


@pytest.mark.parametrize("reader", READERS)
async def test_a_reader_receives_all_events_when_nginx_is_cut_off_from_the_server(
    client: Client, behind: tuple[Cutter, Nginx], reader: str
) -> None:
    cutter, nginx = behind
    await receives_all(client, nginx.base, reader, cutter)


async def test_simultaneous_readers_receive_the_same_events(client: Client, before: Cutter) -> None:
    started = await client.start("talker", WORDS)
    path = f"/v1/runs/{started['id']}"
    before.every = 30
    url = f"{before.base}{path}/events?include=state,trace"
    received = await asyncio.gather(*(read(url, Received()) for read in READERS.values()))
    log = await client.log(path)
    assert [one.events for one in received] == [log] * len(READERS)
