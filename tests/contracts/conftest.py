"""What the contract suites run against."""

import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.certificates import Certificate, self_signed
from tests.support.databases import Databases
from tests.support.hosts import Host, hosting
from tests.support.providers import FakeProvider, fake_provider
from tests.support.remotes import Remotes, shared_remotes


@pytest.fixture(scope="session")
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as running:
        yield running


@pytest.fixture(scope="module")
async def remotes(
    postgres: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Remotes]:
    async with shared_remotes(postgres, tmp_path_factory.mktemp("remotes")) as opened:
        yield opened


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return self_signed(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with hosting() as opened:
        yield opened


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Bound, so that nobody else gets it, and not listening."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
