"""Three replicas behind nginx are replaced under load: no request is refused, and cut streams reconnect."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.readers import httpx2_event_source
from tests.support.rolling import ask_to_stop, under_load, until_it_streams
from tests.support.servers import serving
from tests.support.streams import Client
from tests.system.nginx import Nginx, proxying
from tests.system.readers import eventsource, eventsource_parser

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

REPLICAS = 3
# A start names its run, so nginx may send it twice. A replica that restarts stays in the upstream.
RETRY_NEXT_REPLICA = "proxy_next_upstream error timeout http_502 http_503 http_504 non_idempotent;"
KEEP_IN_UPSTREAM = "max_fails=0"


async def test_replicas_are_replaced_under_load(
    shared_database_url: str, agents: Path, tmp_path: Path
) -> None:
    ports = [free_port() for _ in range(REPLICAS)]
    nginx = Nginx(tmp_path / "nginx", ports, each=KEEP_IN_UPSTREAM, proxying=RETRY_NEXT_REPLICA)
    readers = [eventsource, eventsource_parser, eventsource_parser, httpx2_event_source]
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(serving(shared_database_url, agents=agents, port=port))
            for port in ports
        ]
        await stack.enter_async_context(proxying(nginx))
        async with under_load(nginx.base, readers, tmp_path) as load:
            for server in servers:
                await until_it_streams(server)
                await ask_to_stop(server)
                await stack.enter_async_context(
                    serving(shared_database_url, agents=agents, port=server.port)
                )
        async with Client(nginx.base) as client:
            await load.nothing_is_lost_or_doubled(client)
