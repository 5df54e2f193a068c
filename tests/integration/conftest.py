"""What tests of HTTP share: one server process per module, and a client of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.databases import Databases
from tests.support.servers import Server, serving
from tests.support.streams import Client

AGENTS = Path(__file__).parent / "agents" / "agents.toml"


@pytest.fixture(scope="module")
async def served_database(postgres: Databases) -> AsyncIterator[str]:
    """The database of the module's server, for tests that read its tables."""
    async with postgres.fresh() as url:
        yield url


@pytest.fixture(scope="module")
async def server(served_database: str) -> AsyncIterator[Server]:
    """Without keys, on this machine only. A module that needs other settings defines its own server."""
    async with serving(served_database, agents=AGENTS) as running:
        yield running


@pytest.fixture(scope="module")
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client() as ours:
        yield ours
