"""The journey of runs whose database fails: they wait, and go on by themselves when it is back."""

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
IMPATIENT = {
    "pool_size": 3,
    "hot_pool_size": 4,
    "pool_timeout": 1,
    "statement_timeout": 2,
    "lock_timeout": 1,
    "heartbeat_timeout": 6,
}
_IMPORTANT = ("threads", "messages", "runs", "tickets", "events", "event_heads", "workers")

_OURS = """FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'holdfast'"""


@dataclass(frozen=True, slots=True)
class Place:
    """A server of ours, and its database: behind an address that stays the same."""

    server: Server
    client: Client
    way: Forwarder
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
async def opened(cluster: Cluster, url: str, agents: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        way = await stack.enter_async_context(forwarding(url))
        server = await stack.enter_async_context(serving(way.url, agents=agents, **IMPATIENT))
        yield Place(server, await stack.enter_async_context(server.client()), way, cluster)


@pytest.fixture(scope="module")
async def place(cluster: Cluster, agents: Path) -> AsyncIterator[Place]:
    async with opened(cluster, await make_database(cluster), agents) as one:
        yield one


@pytest.fixture(autouse=True)
async def nothing_is_broken(place: Place) -> AsyncIterator[None]:
    await place.ready()
    yield
    if not place.cluster.runs:
        # A test has failed in the middle: it alone.
        await asyncio.to_thread(place.cluster.start)
    await place.ready()
    assert await broken_invariants(place.cluster.url("holdfast")) == {}


@pytest.fixture
def effects(tmp_path: Path) -> Effects:
    return Effects(tmp_path / "effects")


async def waiting_run(place: Place) -> dict[str, Any]:
    started = await place.client.start("quick", ASK)
    return await place.client.settled(started["run_id"])


async def done(place: Place, run_id: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        run = await place.client.run(run_id)
        return run if run["status"] == "done" else None

    run = await eventually(look)
    check_run(await place.client.log(f"/v1/runs/{run_id}"))
    return run


# --- the server goes, and comes back --------------------------------------------------------------


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_runs_go_on_after_a_restart(place: Place, effects: Effects, how: str) -> None:
    client = place.client
    waiting = await waiting_run(place)
    started = await client.start("quick", f'CALL send {{"file": "{effects.file}", "hold": true}}')
    await effects.happened()
    async with client.start_stream("talker", WORDS) as stream:
        await stream.until("text_delta", 3)
        said = len(place.server.log)
        await asyncio.to_thread(place.cluster.stop, how)
        await place.unready("unreachable")
        body = start_body("quick", "hello", run_id=str(uuid4()))
        assert refused(await client.http.post("/v1/runs", json=body)) == "database_unavailable"
        refused(await client.http.get(f"/v1/runs/{waiting['run_id']}"), "unreachable")
        path, answer = answer_to(waiting)
        refused(await client.http.post(path, json=answer), "unreachable")

        async def measured() -> bool:
            return await place.metric("holdfast_database_ready") == 0

        await eventually(measured)
        effects.release()
        await asyncio.to_thread(place.cluster.start)
        await place.ready()
        assert (await client.post(path, answer))["run"]["run_id"] == waiting["run_id"]
        assert (await client.post("/v1/runs", body, 202))["run_id"] == body["run_id"]
        heard = await stream.rest()
    assert text_of(heard) == (await client.run(heard[0]["run_id"]))["final_output"]
    for run_id in (waiting["run_id"], started["run_id"], body["run_id"], heard[0]["run_id"]):
        assert (await done(place, run_id))["outcome"] == "succeeded"
    assert len(effects.lines) == 1
    assert await place.metric('holdfast_database_failures_total{reason="unreachable"}') > 0
    assert await place.metric("holdfast_database_ready") == 1
    lines = place.server.log[said:].splitlines()
    assert "Traceback" not in place.server.log[said:], place.server.log[said:]
    assert "database_away" in place.server.log
    assert len([line for line in lines if "database_away" in line]) <= 4
    assert len([line for line in lines if "refused" not in line]) < 25, lines


async def test_killing_idle_connections_is_noticed_by_nobody(place: Place) -> None:
    await asyncio.gather(*(place.client.start("quick", "hello") for _ in range(8)))
    database = await place.database()
    assert await database.fetchval(f"SELECT count(pg_terminate_backend(pid, 5000)) {_OURS}") > 4
    await sleep(0.05)
    answers = await asyncio.gather(
        *(place.client.http.post("/v1/runs", json=start_body("quick", "hello")) for _ in range(8))
    )
    assert [answer.status_code for answer in answers] == [202] * 8
    for answer in answers:
        await done(place, answer.json()["run_id"])
    await database.close()


async def test_connections_that_fell_silent_are_left(place: Place, effects: Effects) -> None:
    client = place.client
    waiting = await waiting_run(place)
    async with client.start_stream("talker", WORDS) as stream:
        await stream.until("text_delta", 3)
        place.way.silence()
        path, answer = answer_to(waiting)
        async with asyncio.timeout(10):
            first = await client.http.post(path, json=answer)
        refused(first, "silent")

        async def decided() -> bool:
            return (await client.http.post(path, json=answer)).status_code == 200

        async with asyncio.timeout(10):
            await eventually(decided)
        heard = await stream.rest()
    assert text_of(heard) == (await client.run(heard[0]["run_id"]))["final_output"]
    assert (await done(place, waiting["run_id"]))["outcome"] == "succeeded"
    started = await client.start("quick", ASK)
    again = await client.settled(started["run_id"])
    await client.post(*answer_to(again))
    assert (await done(place, started["run_id"]))["outcome"] == "succeeded"


@pytest.mark.parametrize("how", ["refused", "silent"])
async def test_a_process_that_ends_does_not_wait_for_its_database(
    place: Place, agents: Path, effects: Effects, how: str
) -> None:
    url = place.cluster.url("holdfast")
    async with forwarding(url) as way, serving(way.url, **IMPATIENT, agents=agents) as leaving:
        async with leaving.client() as client:
            held = await client.start(
                "quick", f'CALL look {{"file": "{effects.file}", "hold": true}}'
            )
            await effects.happened()
            talking = await client.start("talker", WORDS)
            if how == "refused":
                await way.block()
            else:
                way.silence_for_ever()
            leaving.terminate()
            async with asyncio.timeout(10):
                assert await leaving.gone() == 0
    assert "Traceback" not in leaving.log, leaving.log
    effects.release()
    for run in (held, talking):
        assert (await done(place, run["run_id"]))["outcome"] == "succeeded", "others go on with it"


# --- the server is there, and can't -----------------------------------------------------------------


async def breakable(place: Place) -> "asyncpg.Connection[asyncpg.Record]":
    """The server raises whatever stands in the table `broken`, for every write that matters."""
    database = await place.database()
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
    for table in _IMPORTANT:
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
async def test_what_the_server_can_not_write_is_written_later(
    place: Place, effects: Effects, code: str, reason: str
) -> None:
    client = place.client
    database = await breakable(place)
    waiting = await waiting_run(place)
    started = await client.start("quick", f'CALL send {{"file": "{effects.file}", "hold": true}}')
    await effects.happened()
    await database.execute("INSERT INTO broken VALUES ($1)", code)
    body = start_body("quick", "hello", run_id=str(uuid4()))
    path, answer = answer_to(waiting)
    refused(await client.http.post("/v1/runs", json=body), reason)
    refused(await client.http.post(path, json=answer), reason)
    effects.release()
    await place.unready(reason)
    await database.execute("DELETE FROM broken")
    await place.ready()
    assert (await client.post("/v1/runs", body, 202))["run_id"] == body["run_id"]
    await client.post(path, answer)
    for run_id in (waiting["run_id"], started["run_id"], body["run_id"]):
        assert (await done(place, run_id))["outcome"] == "succeeded"
    assert len(effects.lines) == 1
    await database.close()


async def test_a_server_that_takes_no_writes_is_not_ready(place: Place) -> None:
    waiting = await waiting_run(place)
    database = await place.database()
    await database.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    await database.execute("SELECT pg_reload_conf()")
    await place.unready("read_only")
    path, answer = answer_to(waiting)
    refused(await place.client.http.post(path, json=answer), "read_only")
    assert (await place.client.run(waiting["run_id"]))["status"] == "waiting", "reading goes on"
    await database.execute("SET default_transaction_read_only = off")
    await database.execute("ALTER SYSTEM RESET default_transaction_read_only")
    await database.execute("SELECT pg_reload_conf()")
    await place.ready()
    await place.client.post(path, answer)
    assert (await done(place, waiting["run_id"]))["outcome"] == "succeeded"
    await database.close()


async def test_whoever_needs_what_is_locked_is_told_in_time(place: Place) -> None:
    waiting, other = await waiting_run(place), await waiting_run(place)
    database = await place.database()
    path, answer = answer_to(waiting)
    async with database.transaction():
        await database.execute("SELECT FROM runs WHERE id = $1 FOR UPDATE", waiting["run_id"])
        async with asyncio.timeout(5):
            refused(await place.client.http.post(path, json=answer), "locked")
        await place.client.post(*answer_to(other))
        assert (await done(place, other["run_id"]))["outcome"] == "succeeded", "others go on"
    await place.client.post(path, answer)
    assert (await done(place, waiting["run_id"]))["outcome"] == "succeeded"
    await database.close()


async def test_when_all_connections_are_busy_requests_are_told_in_time(place: Place) -> None:
    """Somebody has locked a whole table, so that everything waits."""
    waiting = await waiting_run(place)
    database = await place.database()
    path, answer = answer_to(waiting)
    async with database.transaction():
        await database.execute("LOCK TABLE threads, runs, tickets IN ACCESS EXCLUSIVE MODE")
        async with asyncio.timeout(8):
            answers = await asyncio.gather(
                *(place.client.http.post(path, json=answer) for _ in range(12)),
                *(place.client.http.get(f"/v1/runs/{waiting['run_id']}") for _ in range(12)),
            )
        codes = [refused(answer, "busy", "locked", "too_slow") for answer in answers]
        assert "overloaded" in codes
        async with asyncio.timeout(4):
            await place.unready("busy", "locked", "too_slow")
    await place.ready()
    await place.client.post(path, answer)
    assert (await done(place, waiting["run_id"]))["outcome"] == "succeeded"
    await database.close()


async def test_a_server_without_room_for_connections_is_waited_for(place: Place) -> None:
    waiting = await waiting_run(place)
    database = await place.database()
    taken = [database]
    while await database.fetchval(f"SELECT count(pg_terminate_backend(pid, 5000)) {_OURS}"):
        with suppress(asyncpg.TooManyConnectionsError):
            while True:
                taken.append(await place.database())
    path, answer = answer_to(waiting)

    refusal = await place.client.http.post(path, json=answer)
    assert refused(refusal, "too_many_connections") == "overloaded"
    await place.unready("too_many_connections")
    for connection in taken:
        await connection.close()
    await place.ready()
    await place.client.post(path, answer)
    assert (await done(place, waiting["run_id"]))["outcome"] == "succeeded"


# --- another server takes over ----------------------------------------------------------------------


async def test_a_standby_takes_over_at_the_same_address(agents: Path, effects: Effects) -> None:
    with running_cluster() as first, cluster_folder() as second:
        url = await make_database(first)
        await asyncio.to_thread(first.copy, second)
        await asyncio.to_thread(second.start)
        await wait_for_every_commit(first)
        async with (
            opened(first, url, agents) as place,
            forwarding(url) as to_first,
            forwarding(second.url("holdfast")) as to_second,
            listing(to_first, to_second) as both,
        ):
            await both.ping()
            waiting = await waiting_run(place)
            call = f'CALL send {{"file": "{effects.file}", "hold": true}}'
            started = await place.client.start("quick", call)
            await effects.happened()
            async with place.client.start_stream("talker", WORDS) as stream:
                await stream.until("text_delta", 3)
                await asyncio.to_thread(first.stop, "immediate")
                await to_first.block()
                place.way.lead_to(second.url("holdfast"))
                await place.unready("read_only")
                path, answer = answer_to(waiting)
                refused(await place.client.http.post(path, json=answer), "read_only")
                effects.release()
                await asyncio.to_thread(second.promote)
                await place.ready()
                await eventually(lambda: takes_writes(both))
                await place.client.post(path, answer)
                heard = await stream.rest()
            assert text_of(heard) == (await place.client.run(heard[0]["run_id"]))["final_output"]
            for run_id in (waiting["run_id"], started["run_id"], heard[0]["run_id"]):
                assert (await done(place, run_id))["outcome"] == "succeeded"
            assert len(effects.lines) == 1
        assert await broken_invariants(second.url("holdfast")) == {}


@asynccontextmanager
async def listing(*ways: Forwarder) -> AsyncIterator[Database]:
    """By an address that names several servers, of which the one is meant that takes writes."""
    places = ",".join(f"127.0.0.1:{way.port}" for way in ways)
    url = f"postgresql://postgres@{places}/holdfast?sslmode=disable&target_session_attrs=read-write"
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
    """From now on nothing counts as committed that the standby doesn't have."""
    database = await asyncpg.connect(cluster.url())

    async def follows() -> bool:
        return bool(await database.fetchval("SELECT count(*) FROM pg_stat_replication"))

    await eventually(follows)
    await database.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    await database.execute("SELECT pg_reload_conf()")
    await database.close()
