"""Fixtures of the journeys: a fake provider, its agents, and server processes for a whole module."""

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.conditions import Effects
from tests.support.crash_points import FAST_TAKEOVER
from tests.support.databases import Databases
from tests.support.providers import FakeProvider, fake_provider
from tests.support.servers import Server, serving
from tests.support.streams import Client


@pytest.fixture(scope="session")
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as running:
        yield running


@pytest.fixture(scope="session")
def agents(tmp_path_factory: pytest.TempPathFactory, provider: FakeProvider) -> Path:
    """The agents file, beside its tools, with the provider's port in it."""
    folder = tmp_path_factory.mktemp("agents")
    shutil.copytree(Path(__file__).parent / "agents", folder, dirs_exist_ok=True)
    file = folder / "agents.toml"
    file.write_text(file.read_text().replace("PORT", str(provider.port)))
    return file


@pytest.fixture(scope="module")
async def shared_database_url(postgres: Databases) -> AsyncIterator[str]:
    async with postgres.fresh() as url:
        yield url


@pytest.fixture(scope="module")
async def server(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    """One process that serves and executes."""
    async with serving(shared_database_url, agents=agents) as running:
        yield running


@pytest.fixture(scope="module")
async def both(shared_database_url: str, agents: Path) -> AsyncIterator[tuple[Client, Client]]:
    """Clients of two processes that serve and execute."""
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(2):
            one = await stack.enter_async_context(serving(shared_database_url, agents=agents))
            clients.append(await stack.enter_async_context(one.client()))
        yield clients[0], clients[1]


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client() as ours:
        yield ours


@pytest.fixture
def effects(tmp_path: Path) -> Effects:
    return Effects(tmp_path / "effects")


@pytest.fixture(scope="module")
async def there(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    """A server that lives on while another one is killed, and takes its runs over soon."""
    async with serving(shared_database_url, agents=agents, **FAST_TAKEOVER) as running:
        yield running


@pytest.fixture
async def other(there: Server) -> AsyncIterator[Client]:
    async with there.client() as client:
        yield client
