"""One server per module, with keys and rows of two tenants."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.databases import Databases
from tests.support.keys import Holder, write_keys
from tests.support.servers import Server, serving
from tests.surface.tenant_data import TenantData, create_tenant_data

AGENTS = Path(__file__).parents[1] / "integration" / "agents" / "agents.toml"
OURS, THEIRS = "ann", "bob"
HOLDERS = {OURS: Holder("acme", ["admin"]), THEIRS: Holder("globex", ["admin"])}


@pytest.fixture(scope="module")
async def served_database(postgres: Databases) -> AsyncIterator[str]:
    async with postgres.fresh() as url:
        yield url


@pytest.fixture(scope="module")
async def server(
    served_database: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    keys = write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", HOLDERS)
    async with serving(
        served_database, agents=AGENTS, api_keys_file=keys, log_level="warning"
    ) as running:
        yield running


@pytest.fixture
async def ours(server: Server, served_database: str) -> TenantData:
    async with server.client(OURS) as client:
        return await create_tenant_data(client, "ours", served_database)


@pytest.fixture(scope="module")
async def theirs(server: Server, served_database: str) -> TenantData:
    async with server.client(THEIRS) as client:
        return await create_tenant_data(client, "theirs", served_database)
