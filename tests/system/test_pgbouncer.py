"""Everything but LISTEN goes through a PgBouncer in transaction mode, which is restarted on the way."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from tests.support.clusters import Cluster, running_cluster
from tests.support.conditions import Effects, eventually
from tests.support.invariants import broken_invariants
from tests.support.pgbouncer import CONNECTIONS, PgBouncer, pgbouncer
from tests.support.streams import start_body, text_of
from tests.system.whole_journey import (
    ASK,
    LEGS,
    WORDS,
    Leg,
    ServerPair,
    a_lost_servers_runs_are_taken_over,
    finished,
    server_pair,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(max_connections="100") as running:
        yield running


@pytest.fixture(scope="module")
async def bouncer(cluster: Cluster) -> AsyncIterator[PgBouncer]:
    connection = await asyncpg.connect(cluster.url())
    await connection.execute("CREATE DATABASE holdfast")
    # A session setting is lost in a pooler, so it belongs to the role.
    await connection.execute("ALTER ROLE postgres SET statement_timeout = '15s'")
    await connection.close()
    async with pgbouncer(cluster, "holdfast") as running:
        yield running


@pytest.fixture(scope="module")
async def pair(
    bouncer: PgBouncer, cluster: Cluster, agents: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ServerPair]:
    """Both migrate at start, through the pooler; one waits for the other."""
    settings = {
        "agents": agents,
        "pgbouncer": 1,
        "listen_url": cluster.url("holdfast"),
        "migrate": 1,
    }
    folder = tmp_path_factory.mktemp("marks")
    async with server_pair(bouncer.url, folder, **settings) as pair:
        yield pair


@pytest.fixture(autouse=True)
async def nothing_is_broken(pair: ServerPair, cluster: Cluster) -> AsyncIterator[None]:
    yield
    assert await broken_invariants(cluster.url("holdfast")) == {}


@pytest.mark.parametrize("leg", LEGS, ids=lambda leg: leg.__name__)
async def test_each_leg_works_through_the_pooler(pair: ServerPair, leg: Leg) -> None:
    await leg(pair)


async def test_no_prepared_statement_stays_behind_the_pooler(
    pair: ServerPair, bouncer: PgBouncer
) -> None:
    """Prepared statements on server connections would cost memory and clash by name."""
    await pair.here.settled((await pair.here.start("quick", "hello"))["id"])
    async with AsyncExitStack() as stack:
        prepared = []
        for _ in range(CONNECTIONS):
            connection = await asyncpg.connect(bouncer.url, statement_cache_size=0)
            stack.push_async_callback(connection.close)
            # An open transaction holds its server connection, so each one is inspected.
            await stack.enter_async_context(connection.transaction())
            query = "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''"
            prepared.append(await connection.fetchval(query))
    assert prepared == [0] * CONNECTIONS


async def test_runs_continue_after_a_restart_of_the_pooler(
    pair: ServerPair, bouncer: PgBouncer, tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    waiting = await pair.here.settled((await pair.here.start("quick", ASK))["id"])
    held = await pair.here.start("quick", f'CALL send {{"file": "{effects.file}", "hold": true}}')
    await effects.happened()
    async with pair.here.start_stream("talker", WORDS) as stream:
        await stream.until("text_delta", 3)
        await bouncer.stop()
        body = start_body("quick", "hello", run_id=str(uuid4()))
        refusal = await pair.there.http.post("/v1/runs", json=body)
        assert (refusal.status_code, refusal.json()["reason"]) == (503, "unreachable")
        assert (await pair.there.http.get("/health")).status_code == 503
        effects.release()
        await bouncer.start()

        async def accepted() -> bool:
            return (await pair.there.http.post("/v1/runs", json=body)).status_code == 202

        await eventually(accepted)
        received = await stream.rest()
    assert text_of(received) == (await pair.there.run(received[0]["run_id"]))["final_output"]
    await pair.there.decide(waiting, "approve")
    for run_id in (waiting["id"], held["id"], body["run_id"], received[0]["run_id"]):
        await finished(pair.there, run_id)
    assert len(effects.lines) == 1


async def test_runs_continue_after_a_restart_of_the_server_behind_the_pooler(
    pair: ServerPair, cluster: Cluster, tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    waiting = await pair.here.settled((await pair.here.start("quick", ASK))["id"])
    held = await pair.here.start("quick", f'CALL send {{"file": "{effects.file}", "hold": true}}')
    await effects.happened()
    await asyncio.to_thread(cluster.stop, "immediate")
    effects.release()
    await asyncio.to_thread(cluster.start)

    async def decided() -> bool:
        ticket = waiting["waiting"]["tickets"][0]["id"]
        body = {"decisions": [{"ticket_id": ticket, "action": "approve"}]}
        path = f"/v1/runs/{waiting['id']}/decisions"
        return (await pair.there.http.post(path, json=body)).status_code == 200

    await eventually(decided)
    await finished(pair.there, waiting["id"])
    await finished(pair.there, held["id"])
    assert len(effects.lines) == 1


async def test_a_lost_servers_runs_are_taken_over(pair: ServerPair) -> None:
    await a_lost_servers_runs_are_taken_over(pair)
