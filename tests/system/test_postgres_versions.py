"""The whole journey on every supported Postgres version but the embedded one."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from app.storage import migrations
from tests.support.clusters import Cluster, running_cluster
from tests.support.invariants import broken_invariants
from tests.system.postgres_versions import OTHER_VERSIONS, programs_of
from tests.system.whole_journey import (
    LEGS,
    Leg,
    ServerPair,
    a_lost_servers_runs_are_taken_over,
    server_pair,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=OTHER_VERSIONS)
def major(request: pytest.FixtureRequest) -> int:
    version: int = request.param
    return version


@pytest.fixture(scope="module")
def cluster(major: int) -> Iterator[Cluster]:
    with running_cluster(programs_of(major), max_connections="100") as running:
        yield running


@pytest.fixture(scope="module")
async def database_url(cluster: Cluster, major: int) -> str:
    connection = await asyncpg.connect(cluster.url())
    assert connection.get_server_version().major == major
    await connection.execute("CREATE DATABASE holdfast")
    await connection.close()
    url = cluster.url("holdfast")
    await migrations.upgrade(url)
    return url


@pytest.fixture(scope="module")
async def pair(
    database_url: str, agents: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ServerPair]:
    folder = tmp_path_factory.mktemp("marks")
    async with server_pair(database_url, folder, agents=agents) as pair:
        yield pair


@pytest.fixture(autouse=True)
async def nothing_is_broken(pair: ServerPair, database_url: str) -> AsyncIterator[None]:
    yield
    assert await broken_invariants(database_url) == {}


async def test_the_migrations_make_what_the_code_expects(database_url: str) -> None:
    await migrations.check_drift(database_url)


@pytest.mark.parametrize("leg", LEGS, ids=lambda leg: leg.__name__)
async def test_each_leg_works_on_this_version(pair: ServerPair, leg: Leg) -> None:
    await leg(pair)


async def test_a_lost_servers_runs_are_taken_over(pair: ServerPair) -> None:
    await a_lost_servers_runs_are_taken_over(pair)


async def test_the_migrations_can_be_reverted(cluster: Cluster) -> None:
    connection = await asyncpg.connect(cluster.url())
    await connection.execute("CREATE DATABASE there_and_back")
    await connection.close()
    url = cluster.url("there_and_back")
    await migrations.upgrade(url)
    await migrations.downgrade(url, "base")
    await migrations.upgrade(url)
