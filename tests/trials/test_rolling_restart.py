"""A rolling restart: three replicas are replaced under load without an effect on clients."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.balancers import balancing
from tests.support.readers import httpx2_event_source
from tests.support.rolling import ask_to_stop, under_load
from tests.support.servers import serving
from tests.support.streams import Client

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]

REPLICAS = 3
CLIENTS = 4
DRAIN_DELAY = 0.5


async def test_replicas_are_replaced_under_load(
    shared_database_url: str, agents: Path, tmp_path: Path
) -> None:
    settings = {"agents": agents, "drain_delay": DRAIN_DELAY}
    async with AsyncExitStack() as stack:
        balancer = await stack.enter_async_context(balancing())
        servers = await asyncio.gather(
            *(
                stack.enter_async_context(serving(shared_database_url, **settings))
                for _ in range(REPLICAS)
            )
        )
        for server in servers:
            balancer.add(server.port)
            await balancer.uses(server.port)
        readers = [httpx2_event_source] * CLIENTS
        async with under_load(balancer.base, readers, tmp_path) as load:
            for server in servers:
                new = await stack.enter_async_context(serving(shared_database_url, **settings))
                balancer.add(new.port)
                await balancer.uses(new.port)
                stopping = asyncio.get_running_loop().create_task(ask_to_stop(server))
                await balancer.avoids(server.port)
                assert not stopping.done(), "the server exited before the balancer avoided it"
                await stopping
                balancer.remove(server.port)
        async with Client(balancer.base) as client:
            await load.nothing_is_lost_or_doubled(client)
