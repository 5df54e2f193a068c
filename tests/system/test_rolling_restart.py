"""Three replicas behind nginx are replaced under load: nobody is refused, and what is cut heals by itself."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.readers import httpx2_event_source
from tests.support.rolling import told_to_go, under_load
from tests.support.servers import serving
from tests.support.streams import Client
from tests.system.nginx import Nginx, proxying
from tests.system.readers import eventsource, eventsource_parser

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

REPLICAS = 3
# A start names its run, so it may be sent twice; a replica that is away for a second isn't a bad one.
NEXT_ONE = "proxy_next_upstream error timeout http_502 http_503 http_504 non_idempotent;"
NEVER_BAD = "max_fails=0"


async def test_replicas_are_replaced_under_load(
    shared_database_url: str, agents: Path, tmp_path: Path
) -> None:
    ports = [free_port() for _ in range(REPLICAS)]
    nginx = Nginx(tmp_path / "nginx", ports, each=NEVER_BAD, proxying=NEXT_ONE)
    readers = [eventsource, eventsource_parser, eventsource_parser, httpx2_event_source]
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(serving(shared_database_url, agents=agents, port=port))
            for port in ports
        ]
        await stack.enter_async_context(proxying(nginx))
        async with under_load(nginx.base, readers, tmp_path) as load:
            for server in servers:
                await told_to_go(server)
                await stack.enter_async_context(
                    serving(shared_database_url, agents=agents, port=server.port)
                )
        async with Client(nginx.base) as client:
            await load.nothing_is_lost_or_doubled(client)
