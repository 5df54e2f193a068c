"""Runs whose database fails wait, and continue when it is back."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from app.clock import sleep
from app.storage import migrations
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from tests.support.clusters import Cluster, cluster_folder, running_cluster
from tests.support.conditions import Effects, eventually
from tests.support.event_order import check_run
from tests.support.forwarders import Forwarder, forwarding
from tests.support.invariants import broken_invariants
from tests.support.outages import answer_to, ready, refused, unready
from tests.support.servers import Server, serving
from tests.support.streams import Client, start_body, text_of

pytestmark = pytest.mark.anyio

WORDS = "one two three four five six seven eight nine ten eleven twelve " * 8
ASK = 'CALL risky {"what": "it"}'
SHORT_TIMEOUTS = {
    "pool_size": 3,
    "hot_pool_size": 4,
    "pool_timeout": 1,
    "statement_timeout": 2,
    "lock_timeout": 1,
    "heartbeat_timeout": 6,
}
_WRITTEN_TABLES = ("threads", "messages", "runs", "tickets", "events", "event_heads", "workers")

_OWN_CONNECTIONS = """FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'holdfast'"""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A server and its database, which is behind a forwarder with a fixed address."""

    server: Server
    client: Client
    forwarder: Forwarder
    cluster: Cluster

    async def database(self) -> "asyncpg.Connection[asyncpg.Record]":
        return await asyncpg.connect(self.cluster.url("holdfast"))

    async def ready(self) -> None:
        await ready(self.client)

    async def unready(self, *reasons: str) -> None:
        await unready(self.client, *reasons)

    async def metric(self, name: str) -> float:
        text = (await self.client.http.get("/metrics")).text
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as running:
        yield running


async def make_database(cluster: Cluster) -> str:
    connection = await asyncpg.connect(cluster.url())
    await connection.execute("CREATE DATABASE holdfast")
    await connection.close()
    await migrations.upgrade(cluster.url("holdfast"))
    return cluster.url("holdfast")


@asynccontextmanager
async def opened(cluster: Cluster, url: str, agents: Path) -> AsyncIterator[Deployment]:
    async with AsyncExitStack() as stack:
        forwarder = await stack.enter_async_context(forwarding(url))
        server = await stack.enter_async_context(
            serving(forwarder.url, agents=agents, **SHORT_TIMEOUTS)
        )
        yield Deployment(
            server, await stack.enter_async_context(server.client()), forwarder, cluster
        )


@pytest.fixture(scope="module")
async def deployment(cluster: Cluster, agents: Path) -> AsyncIterator[Deployment]:
    async with opened(cluster, await make_database(cluster), agents) as one:
        yield one


@pytest.fixture(autouse=True)
async def nothing_is_broken(deployment: Deployment) -> AsyncIterator[None]:
    await deployment.ready()
    yield
    if not deployment.cluster.runs:
        # A failed test left the cluster stopped; restart it for the next test.
        await asyncio.to_thread(deployment.cluster.start)
    await deployment.ready()
    assert await broken_invariants(deployment.cluster.url("holdfast")) == {}


@pytest.fixture
def effects(tmp_path: Path) -> Effects:
    return Effects(tmp_path / "effects")


async def waiting_run(deployment: Deployment) -> dict[str, Any]:
    started = await deployment.client.start("quick", ASK)
    return await deployment.client.settled(started["id"])


async def done(deployment: Deployment, run_id: str) -> dict[str, Any]:
    async def is_done() -> dict[str, Any] | None:
        run = await deployment.client.run(run_id)
        return run if run["status"] == "done" else None

    run = await eventually(is_done)
    check_run(await deployment.client.log(f"/v1/runs/{run_id}"))
    return run


# --- the database stops and restarts --------------------------------------------------------------


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_runs_continue_after_a_restart_of_the_database(
    deployment: Deployment, effects: Effects, how: str
) -> None:
    client = deployment.client
    waiting = await waiting_run(deployment)
    started = await client.start("quick", f'CALL send {{"file": "{effects.file}", "hold": true}}')
    await effects.happened()
    async with client.start_stream("talker", WORDS) as stream:
        await stream.until("text_delta", 3)
        log_start = len(deployment.server.log)
        await asyncio.to_thread(deployment.cluster.stop, how)
        await deployment.unready("unreachable")
        body = start_body("quick", "hello", run_id=str(uuid4()))
        assert refused(await client.http.post("/v1/runs", json=body)) == "database_unavailable"
        refused(await client.http.get(f"/v1/runs/{waiting['id']}"), "unreachable")
        path, answer = answer_to(waiting)
        refused(await client.http.post(path, json=answer), "unreachable")

        async def measured() -> bool:
            return await deployment.metric("holdfast_database_ready") == 0

        await eventually(measured)
        effects.release()
        await asyncio.to_thread(deployment.cluster.start)
        await deployment.ready()
        assert (await client.post(path, answer))["run"]["id"] == waiting["id"]
        assert (await client.post("/v1/runs", body, 202))["id"] == body["run_id"]
        received = await stream.rest()
    assert text_of(received) == (await client.run(received[0]["run_id"]))["final_output"]
    for run_id in (waiting["id"], started["id"], body["run_id"], received[0]["run_id"]):
        assert (await done(deployment, run_id))["outcome"] == "succeeded"
    assert len(effects.lines) == 1
    assert await deployment.metric('holdfast_database_failures_total{reason="unreachable"}') > 0
    assert await deployment.metric("holdfast_database_ready") == 1
    lines = deployment.server.log[log_start:].splitlines()
    assert "Traceback" not in deployment.server.log[log_start:], deployment.server.log[log_start:]
    assert "database_unavailable" in deployment.server.log
    assert len([line for line in lines if "database_unavailable" in line]) <= 4
    assert len([line for line in lines if "refused" not in line]) < 25, lines


async def test_requests_succeed_after_idle_connections_are_killed(deployment: Deployment) -> None:
    await asyncio.gather(*(deployment.client.start("quick", "hello") for _ in range(8)))
    database = await deployment.database()
    assert (
        await database.fetchval(f"SELECT count(pg_terminate_backend(pid, 5000)) {_OWN_CONNECTIONS}")
        > 4
    )
    await sleep(0.05)
    answers = await asyncio.gather(
        *(
            deployment.client.http.post("/v1/runs", json=start_body("quick", "hello"))
            for _ in range(8)
        )
    )
    assert [answer.status_code for answer in answers] == [202] * 8
    for answer in answers:
        await done(deployment, answer.json()["id"])
    await database.close()


async def test_silent_connections_are_replaced(deployment: Deployment, effects: Effects) -> None:
    client = deployment.client
    waiting = await waiting_run(deployment)
    async with client.start_stream("talker", WORDS) as stream:
        await stream.until("text_delta", 3)
        deployment.forwarder.drop_traffic_of_open_connections()
        path, answer = answer_to(waiting)
        async with asyncio.timeout(10):
            first = await client.http.post(path, json=answer)
        refused(first, "silent")

        async def decided() -> bool:
            return (await client.http.post(path, json=answer)).status_code == 200

        async with asyncio.timeout(10):
            await eventually(decided)
        received = await stream.rest()
    assert text_of(received) == (await client.run(received[0]["run_id"]))["final_output"]
    assert (await done(deployment, waiting["id"]))["outcome"] == "succeeded"
    started = await client.start("quick", ASK)
    again = await client.settled(started["id"])
    await client.post(*answer_to(again))
    assert (await done(deployment, started["id"]))["outcome"] == "succeeded"


@pytest.mark.parametrize("how", ["refused", "silent"])
async def test_a_stopping_process_does_not_wait_for_its_database(
    deployment: Deployment, agents: Path, effects: Effects, how: str
) -> None:
    url = deployment.cluster.url("holdfast")
    async with (
        forwarding(url) as forwarder,
        serving(forwarder.url, **SHORT_TIMEOUTS, agents=agents) as stopping,
    ):
        async with stopping.client() as client:
            held = await client.start(
                "quick", f'CALL look {{"file": "{effects.file}", "hold": true}}'
            )
            await effects.happened()
            talking = await client.start("talker", WORDS)
            if how == "refused":
                await forwarder.block()
            else:
                forwarder.drop_all_traffic()
            stopping.terminate()
            async with asyncio.timeout(10):
                assert await stopping.gone() == 0
    assert "Traceback" not in stopping.log, stopping.log
    effects.release()
    for run in (held, talking):
        assert (await done(deployment, run["id"]))["outcome"] == "succeeded", (
            "no other process continued the run"
        )


# --- the database refuses statements --------------------------------------------------------------


async def breakable(deployment: Deployment) -> "asyncpg.Connection[asyncpg.Record]":
    """Make every important write raise the error code in the table `broken`."""
    database = await deployment.database()
    await database.execute(
        """
        CREATE TABLE IF NOT EXISTS broken (code text);
        CREATE OR REPLACE FUNCTION break() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE wanted text;
        BEGIN
            SELECT code INTO wanted FROM broken;
            IF FOUND THEN RAISE EXCEPTION 'as the test wants' USING ERRCODE = wanted; END IF;
            RETURN NEW;
        END $$
        """
    )
    for table in _WRITTEN_TABLES:
        await database.execute(
            f"CREATE OR REPLACE TRIGGER break BEFORE INSERT OR UPDATE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION break()"
        )
    return database


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("53100", "disk_full"),
        ("53200", "out_of_resources"),
        ("58030", "out_of_resources"),
        ("57014", "too_slow"),
        ("55P03", "locked"),
        ("40P01", "locked"),
        ("40001", "locked"),
        ("25006", "read_only"),
    ],
)
async def test_failed_writes_are_repeated_when_the_database_accepts_them(
    deployment: Deployment, effects: Effects, code: str, reason: str
) -> None:
    client = deployment.client
    database = await breakable(deployment)
    waiting = await waiting_run(deployment)
    started = await client.start("quick", f'CALL send {{"file": "{effects.file}", "hold": true}}')
    await effects.happened()
    await database.execute("INSERT INTO broken VALUES ($1)", code)
    body = start_body("quick", "hello", run_id=str(uuid4()))
    path, answer = answer_to(waiting)
    refused(await client.http.post("/v1/runs", json=body), reason)
    refused(await client.http.post(path, json=answer), reason)
    effects.release()
    await deployment.unready(reason)
    await database.execute("DELETE FROM broken")
    await deployment.ready()
    assert (await client.post("/v1/runs", body, 202))["id"] == body["run_id"]
    await client.post(path, answer)
    for run_id in (waiting["id"], started["id"], body["run_id"]):
        assert (await done(deployment, run_id))["outcome"] == "succeeded"
    assert len(effects.lines) == 1
    await database.close()


async def test_a_read_only_server_is_not_ready(deployment: Deployment) -> None:
    waiting = await waiting_run(deployment)
    database = await deployment.database()
    await database.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    await database.execute("SELECT pg_reload_conf()")
    await deployment.unready("read_only")
    path, answer = answer_to(waiting)
    refused(await deployment.client.http.post(path, json=answer), "read_only")
    assert (await deployment.client.run(waiting["id"]))["status"] == "waiting", (
        "reads work on a read-only server"
    )
    await database.execute("SET default_transaction_read_only = off")
    await database.execute("ALTER SYSTEM RESET default_transaction_read_only")
    await database.execute("SELECT pg_reload_conf()")
    await deployment.ready()
    await deployment.client.post(path, answer)
    assert (await done(deployment, waiting["id"]))["outcome"] == "succeeded"
    await database.close()


async def test_a_request_for_a_locked_row_is_refused_in_time(deployment: Deployment) -> None:
    waiting, other = await waiting_run(deployment), await waiting_run(deployment)
    database = await deployment.database()
    path, answer = answer_to(waiting)
    async with database.transaction():
        await database.execute("SELECT FROM runs WHERE id = $1 FOR UPDATE", waiting["id"])
        async with asyncio.timeout(20):
            refused(await deployment.client.http.post(path, json=answer), "locked")
        await deployment.client.post(*answer_to(other))
        assert (await done(deployment, other["id"]))["outcome"] == "succeeded", (
            "a run without the lock was held up"
        )
    await deployment.client.post(path, answer)
    assert (await done(deployment, waiting["id"]))["outcome"] == "succeeded"
    await database.close()


async def test_requests_are_refused_in_time_when_all_connections_are_busy(
    deployment: Deployment,
) -> None:
    """A locked table makes every statement wait."""
    waiting = await waiting_run(deployment)
    database = await deployment.database()
    path, answer = answer_to(waiting)
    async with database.transaction():
        await database.execute("LOCK TABLE threads, runs, tickets IN ACCESS EXCLUSIVE MODE")
        async with asyncio.timeout(20):
            answers = await asyncio.gather(
                *(deployment.client.http.post(path, json=answer) for _ in range(12)),
                *(deployment.client.http.get(f"/v1/runs/{waiting['id']}") for _ in range(12)),
            )
        # On a slow machine a connection also reports `silent`, and its replacement `unreachable`.
        codes = [refused(answer) for answer in answers]
        assert "overloaded" in codes
        async with asyncio.timeout(20):
            await deployment.unready("busy", "locked", "too_slow", "silent", "unreachable")
    await deployment.ready()
    await deployment.client.post(path, answer)
    assert (await done(deployment, waiting["id"]))["outcome"] == "succeeded"
    await database.close()


async def test_a_process_recovers_when_the_database_has_free_connections_again(
    deployment: Deployment,
) -> None:
    waiting = await waiting_run(deployment)
    database = await deployment.database()
    held = [database]
    while await database.fetchval(
        f"SELECT count(pg_terminate_backend(pid, 5000)) {_OWN_CONNECTIONS}"
    ):
        with suppress(asyncpg.TooManyConnectionsError):
            while True:
                held.append(await deployment.database())
    path, answer = answer_to(waiting)

    refusal = await deployment.client.http.post(path, json=answer)
    assert refused(refusal, "too_many_connections") == "overloaded"
    await deployment.unready("too_many_connections")
    for connection in held:
        await connection.close()
    await deployment.ready()
    await deployment.client.post(path, answer)
    assert (await done(deployment, waiting["id"]))["outcome"] == "succeeded"


# --- another server takes over --------------------------------------------------------------------


async def test_a_standby_takes_over_at_the_same_address(agents: Path, effects: Effects) -> None:
    with running_cluster() as first, cluster_folder() as second:
        url = await make_database(first)
        await asyncio.to_thread(first.copy, second)
        await asyncio.to_thread(second.start)
        await wait_for_every_commit(first)
        async with (
            opened(first, url, agents) as deployment,
            forwarding(url) as to_first,
            forwarding(second.url("holdfast")) as to_second,
            opened_by_list(to_first, to_second) as both,
        ):
            await both.ping()
            waiting = await waiting_run(deployment)
            call = f'CALL send {{"file": "{effects.file}", "hold": true}}'
            started = await deployment.client.start("quick", call)
            await effects.happened()
            async with deployment.client.start_stream("talker", WORDS) as stream:
                await stream.until("text_delta", 3)
                await asyncio.to_thread(first.stop, "immediate")
                await to_first.block()
                deployment.forwarder.lead_to(second.url("holdfast"))
                await deployment.unready("read_only")
                path, answer = answer_to(waiting)
                refused(await deployment.client.http.post(path, json=answer), "read_only")
                effects.release()
                await asyncio.to_thread(second.promote)
                await deployment.ready()
                await eventually(lambda: takes_writes(both))
                await deployment.client.post(path, answer)
                received = await stream.rest()
            assert (
                text_of(received)
                == (await deployment.client.run(received[0]["run_id"]))["final_output"]
            )
            for run_id in (waiting["id"], started["id"], received[0]["run_id"]):
                assert (await done(deployment, run_id))["outcome"] == "succeeded"
            assert len(effects.lines) == 1
        assert await broken_invariants(second.url("holdfast")) == {}


@asynccontextmanager
async def opened_by_list(*forwarders: Forwarder) -> AsyncIterator[Database]:
    """A database URL that names several servers and selects the writable one."""
    addresses = ",".join(f"127.0.0.1:{forwarder.port}" for forwarder in forwarders)
    url = f"postgresql://postgres@{addresses}/holdfast?sslmode=disable&target_session_attrs=read-write"
    database = await Database.open(url, DatabaseOptions(pool_size=2, hot_pool_size=2))
    try:
        yield database
    finally:
        await database.close()


async def takes_writes(database: Database) -> bool:
    try:
        await database.ping()
    except DATABASE_UNAVAILABLE:
        return False
    return True


async def wait_for_every_commit(cluster: Cluster) -> None:
    """Make replication synchronous: a commit returns after the standby has it."""
    database = await asyncpg.connect(cluster.url())

    async def follows() -> bool:
        return bool(await database.fetchval("SELECT count(*) FROM pg_stat_replication"))

    await eventually(follows)
    await database.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    await database.execute("SELECT pg_reload_conf()")
    await database.close()
