"""Two servers whose hints go over NATS, while NATS is killed and restarted."""

import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from app.bootstrap import connections
from app.domain.errors import ConfigurationError
from app.events.fanout.nats import servers_of
from tests.support.commands import holdfast
from tests.support.event_order import check_run
from tests.support.nats import NatsServer, nats_server
from tests.support.servers import serving
from tests.support.streams import types_of

pytestmark = pytest.mark.anyio

AWAY = re.compile("relay_disconnected")
BACK = re.compile("relay_reconnected")


@pytest.fixture
async def nats() -> AsyncIterator[NatsServer]:
    async with nats_server() as server:
        yield server


async def listening(database_url: str) -> list[str]:
    """The LISTEN statements of all Postgres connections."""
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch(
            "SELECT query FROM pg_stat_activity WHERE datname = current_database()"
            " AND query ILIKE '%LISTEN%' AND pid <> pg_backend_pid()"
        )
    finally:
        await connection.close()
    return [row["query"] for row in rows]


async def test_a_stream_is_complete_although_nats_is_killed_meanwhile(
    database_url: str, agents: Path, nats: NatsServer
) -> None:
    settings = {"agents": agents, "nats_url": nats.url, "log_poll": 0.3}
    async with (
        serving(database_url, **settings) as one,
        serving(database_url, **settings) as other,
        one.client() as here,
        other.client() as there,
    ):
        assert not any("holdfast" in query for query in await listening(database_url))
        started = await here.start("lecturer", "go on")
        path = f"/v1/runs/{started['id']}"
        async with there.events(path) as stream:
            await stream.until("text_delta", 5)
            await nats.kill()
            for server in (one, other):
                await server.printed(AWAY)
            await stream.until("text_delta", 8)
            await nats.start()
            for server in (one, other):
                await server.printed(BACK)
            received = await stream.rest()
        check_run(received)
        assert types_of(received)[-1] == "run_finish"
        assert received == await here.log(path)

        async with here.start_stream("endless", "talk") as stream:
            await stream.until("text_delta", 2)
            cancel = f"/v1/runs/{stream.received[0]['run_id']}/cancel"
            response = await there.http.post(cancel, params={"wait": 20})
        assert response.json()["outcome"] == "cancelled"


async def test_a_server_starts_without_nats_and_logs_it(
    database_url: str, agents: Path, nats: NatsServer
) -> None:
    await nats.kill()
    async with serving(database_url, agents=agents, nats_url=nats.url) as server:
        async with server.client() as client:
            run = await client.settled((await client.start("quick", "hello"))["id"])
            assert run["outcome"] == "succeeded"
        away = await holdfast(
            "doctor", url=server.base, DATABASE_URL=database_url, NATS_URL=nats.url
        )
        assert re.search("problem +NATS: no server of NATS_URL responds", away.out)
        await server.printed(AWAY)
        await nats.start()
        await server.printed(BACK)
        there = await holdfast(
            "doctor", url=server.base, DATABASE_URL=database_url, NATS_URL=nats.url
        )
        assert re.search("ok +NATS: 127.0.0.1:", there.out)
        assert len(AWAY.findall(server.log)) == len(BACK.findall(server.log)) == 1


async def test_an_invalid_nats_url_is_refused_at_the_start(database_url: str) -> None:
    refused = await holdfast("serve", DATABASE_URL=database_url, NATS_URL="me:secret@localhost")
    assert refused.code != 0
    assert "NATS_URL must be a URL such as nats://" in refused.err
    assert "secret" not in refused.out + refused.err


@pytest.mark.parametrize(
    "url", ["", "localhost:4222", "http://here:1", "nats://", "nats://here:port", "nats://a,b"]
)
def test_invalid_nats_urls_are_rejected(url: str) -> None:
    with pytest.raises(ConfigurationError):
        servers_of(url)
    assert servers_of("nats://a, tls://me:secret@b:4222") == ["nats://a", "tls://me:secret@b:4222"]


def test_without_the_nats_extra_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "app.events.fanout.nats", raising=False)
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'holdfast-server\[nats\]'"):
        connections.nats()
