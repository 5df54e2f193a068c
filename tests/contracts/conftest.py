"""Fixtures of the contract tests."""

import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.certificates import Certificate, self_signed
from tests.support.controlled_server import ControlledServer, controlled_server
from tests.support.databases import Databases
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
async def host() -> AsyncIterator[ControlledServer]:
    async with controlled_server() as opened:
        yield opened


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that is bound, so no other process gets it, but not listened on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
