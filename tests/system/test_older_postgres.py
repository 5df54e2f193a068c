"""The same journey on the Postgres of the distribution, which is older than the embedded one."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest

from app.storage import migrations
from tests.support.clusters import Cluster, distribution_programs, running_cluster
from tests.support.invariants import broken_invariants
from tests.support.servers import serving
from tests.system import whole_journey
from tests.system.whole_journey import Travellers

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(distribution_programs(), max_connections="100") as running:
        yield running


@pytest.fixture(scope="module")
async def database_url(cluster: Cluster) -> str:
    connection = await asyncpg.connect(cluster.url())
    major = connection.get_server_version().major
    await connection.execute("CREATE DATABASE holdfast")
    await connection.close()
    assert 14 <= major < 18, f"it is no older one: {major}"
    url = cluster.url("holdfast")
    await migrations.upgrade(url)
    return url


@pytest.fixture(scope="module")
async def we(
    database_url: str, agents: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Travellers]:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(serving(database_url, agents=agents))
        second = await stack.enter_async_context(serving(database_url, agents=agents))
        yield Travellers(
            await stack.enter_async_context(first.client()),
            await stack.enter_async_context(second.client()),
            first,
            second,
            tmp_path_factory.mktemp("marks"),
        )


@pytest.fixture(autouse=True)
async def nothing_is_broken(we: Travellers, database_url: str) -> AsyncIterator[None]:
    yield
    assert await broken_invariants(database_url) == {}


async def test_the_migrations_make_what_the_code_expects(database_url: str) -> None:
    await migrations.check_drift(database_url)


async def test_a_run_is_streamed_by_both(we: Travellers) -> None:
    await whole_journey.start_and_stream(we)


async def test_tickets_are_decided(we: Travellers) -> None:
    await whole_journey.suspend_and_decide(we)


async def test_a_key_has_one_effect(we: Travellers) -> None:
    await whole_journey.repeat(we)


async def test_runs_queue_on_a_thread(we: Travellers) -> None:
    await whole_journey.queue_on_one_thread(we)


async def test_a_cancel_settles(we: Travellers) -> None:
    await whole_journey.cancel(we)


async def test_tasks_go_on_in_the_background(we: Travellers) -> None:
    await whole_journey.tasks_in_the_background(we)


async def test_a_lost_servers_runs_are_taken_over(we: Travellers) -> None:
    """The last one: nobody can use the first server afterwards."""
    await whole_journey.take_over(we)


async def test_the_migrations_can_be_taken_back(cluster: Cluster) -> None:
    connection = await asyncpg.connect(cluster.url())
    await connection.execute("CREATE DATABASE there_and_back")
    await connection.close()
    url = cluster.url("there_and_back")
    await migrations.upgrade(url)
    await migrations.downgrade(url, "base")
    await migrations.upgrade(url)
