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
    Travellers,
    a_lost_servers_runs_are_taken_over,
    finished,
    travelling,
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
    # What a session can't carry through a pooler belongs to the role.
    await connection.execute("ALTER ROLE postgres SET statement_timeout = '15s'")
    await connection.close()
    async with pgbouncer(cluster, "holdfast") as running:
        yield running


@pytest.fixture(scope="module")
async def we(
    bouncer: PgBouncer, cluster: Cluster, agents: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Travellers]:
    """Both migrate at start, through the pooler; one waits for the other."""
    settings = {
        "agents": agents,
        "pgbouncer": 1,
        "listen_url": cluster.url("holdfast"),
        "migrate": 1,
    }
    folder = tmp_path_factory.mktemp("marks")
    async with travelling(bouncer.url, folder, **settings) as travellers:
        yield travellers


@pytest.fixture(autouse=True)
async def nothing_is_broken(we: Travellers, cluster: Cluster) -> AsyncIterator[None]:
    yield
    assert await broken_invariants(cluster.url("holdfast")) == {}


@pytest.mark.parametrize("leg", LEGS, ids=lambda leg: leg.__name__)
async def test_the_journey_leads_through_the_pooler(we: Travellers, leg: Leg) -> None:
    await leg(we)


async def test_nothing_stays_prepared_behind_the_pooler(we: Travellers, bouncer: PgBouncer) -> None:
    """What collects on the server's connections costs memory there, and clashes with others' names."""
    await we.here.settled((await we.here.start("quick", "hello"))["run_id"])
    async with AsyncExitStack() as stack:
        prepared = []
        for _ in range(CONNECTIONS):
            connection = await asyncpg.connect(bouncer.url, statement_cache_size=0)
            stack.push_async_callback(connection.close)
            # A transaction keeps its connection to the server, so that all of them are looked at.
            await stack.enter_async_context(connection.transaction())
            query = "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''"
            prepared.append(await connection.fetchval(query))
    assert prepared == [0] * CONNECTIONS


async def test_runs_go_on_when_the_pooler_is_restarted(
    we: Travellers, bouncer: PgBouncer, tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    waiting = await we.here.settled((await we.here.start("quick", ASK))["run_id"])
    held = await we.here.start("quick", f'CALL send {{"file": "{effects.file}", "hold": true}}')
    await effects.happened()
    async with we.here.start_stream("talker", WORDS) as stream:
        await stream.until("text_delta", 3)
        await bouncer.stop()
        body = start_body("quick", "hello", run_id=str(uuid4()))
        refusal = await we.there.http.post("/v1/runs", json=body)
        assert (refusal.status_code, refusal.json()["reason"]) == (503, "unreachable")
        assert (await we.there.http.get("/health")).status_code == 503
        effects.release()
        await bouncer.start()

        async def accepted() -> bool:
            return (await we.there.http.post("/v1/runs", json=body)).status_code == 202

        await eventually(accepted)
        heard = await stream.rest()
    assert text_of(heard) == (await we.there.run(heard[0]["run_id"]))["final_output"]
    await we.there.decide(waiting, "approve")
    for run_id in (waiting["run_id"], held["run_id"], body["run_id"], heard[0]["run_id"]):
        await finished(we.there, run_id)
    assert len(effects.lines) == 1


async def test_runs_go_on_when_the_server_behind_the_pooler_is_restarted(
    we: Travellers, cluster: Cluster, tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    waiting = await we.here.settled((await we.here.start("quick", ASK))["run_id"])
    held = await we.here.start("quick", f'CALL send {{"file": "{effects.file}", "hold": true}}')
    await effects.happened()
    await asyncio.to_thread(cluster.stop, "immediate")
    effects.release()
    await asyncio.to_thread(cluster.start)

    async def decided() -> bool:
        ticket = waiting["waiting"]["tickets"][0]["id"]
        body = {"decisions": [{"ticket_id": ticket, "action": "approve"}]}
        path = f"/v1/runs/{waiting['run_id']}/decisions"
        return (await we.there.http.post(path, json=body)).status_code == 200

    await eventually(decided)
    await finished(we.there, waiting["run_id"])
    await finished(we.there, held["run_id"])
    assert len(effects.lines) == 1


async def test_a_lost_servers_runs_are_taken_over(we: Travellers) -> None:
    await a_lost_servers_runs_are_taken_over(we)
