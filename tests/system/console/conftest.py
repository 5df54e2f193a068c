"""One Chromium and one server with keys for each module. A key equals the name of its holder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.support.console import built_console
from tests.support.keys import Holder, write_keys
from tests.support.servers import Server, serving
from tests.system.console.browser import chromium

AGENTS = Path(__file__).parent / "agents" / "agents.toml"
STEADY = {"agents": AGENTS, "heartbeat_timeout": 30.0, "pool_timeout": 60.0}
"""Settings of a server that no test kills: on a busy machine it loses no run and refuses no request."""
HOLDERS = {
    "ann": Holder("acme"),
    "ben": Holder("acme"),
    "carol": Holder("acme"),
    "reader": Holder("acme", ["runs:read"]),
    "stranger": Holder("other"),
}


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    built_console()


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", HOLDERS)


@pytest.fixture(scope="module")
async def team(shared_database_url: str, keys_file: Path) -> AsyncIterator[Server]:
    """A server with keys."""
    async with serving(shared_database_url, **STEADY, api_keys_file=keys_file) as server:
        yield server
