"""Postgres on a disk that is really full: nothing is accepted that is lost, and runs wait for room and go on."""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from app.storage import migrations
from tests.support.clusters import Cluster, cluster_folder
from tests.support.conditions import Effects, eventually
from tests.support.invariants import broken_invariants
from tests.support.outages import answer_to, ready, refused, unready
from tests.support.servers import serving
from tests.support.streams import Client, Stream, start_body, text_of
from tests.system.small_disks import SmallDisk, small_disk
from tests.system.whole_journey import ASK, WORDS, finished

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

TABLES_MEGABYTES = 40
LOG_MEGABYTES = 12
LONG_SPEECH = WORDS * 5
MUCH = 30_000
"""Bytes of a message that is to take room."""


@dataclass(slots=True)
class Place:
    """Two servers on one database, a client of each, and the disk that it is short of."""

    here: Client
    there: Client
    cluster: Cluster
    disk: SmallDisk
    accepted: list[str] = field(default_factory=list)
    uncertain: list[dict[str, Any]] = field(default_factory=list)
    """Starts that were refused."""

    async def start_until_refused(self, *reasons: str) -> None:
        """What the server has room for already, it takes: there is some in every table."""

        async def one() -> bool:
            text = random.randbytes(MUCH // 2).hex()
            body = start_body("quick", text, run_id=str(uuid4()))
            answer = await self.here.http.post("/v1/runs", json=body)
            if answer.status_code == 202:
                self.accepted.append(body["run_id"])
                return False
            refused(answer, *reasons)
            self.uncertain.append(body)
            return True

        await eventually(one)

    async def all_goes_on(self) -> None:
        """What was accepted ends by itself; what was refused is taken now, and has one effect."""
        for body in self.uncertain:
            assert (await self.there.post("/v1/runs", body, 202))["run_id"] == body["run_id"]
            await finished(self.there, body["run_id"])
        for run_id in self.accepted:
            await finished(self.here, run_id)
        assert await broken_invariants(self.cluster.url("holdfast")) == {}


@pytest.fixture
async def short_of_tables(agents: Path) -> AsyncIterator[Place]:
    """All but the tables is on another disk."""
    with small_disk(TABLES_MEGABYTES) as disk, cluster_folder(within=disk.within) as cluster:
        cluster.make()
        cluster.start()
        url = await database(
            cluster,
            f"CREATE TABLESPACE small LOCATION '{disk.folder}'",
            "CREATE DATABASE holdfast TABLESPACE small",
        )
        async with two_servers(url, agents) as (here, there):
            yield Place(here, there, cluster, disk)


@pytest.fixture
async def short_of_log(agents: Path) -> AsyncIterator[Place]:
    """Only the write-ahead log is on the small disk: without room for it the server can't even run."""
    with (
        small_disk(LOG_MEGABYTES) as disk,
        cluster_folder(within=disk.within, min_wal_size="2MB", max_wal_size="4MB") as cluster,
    ):
        cluster.make(f"--waldir={disk.folder / 'log'}", "--wal-segsize=1")
        cluster.start()
        url = await database(cluster, "CREATE DATABASE holdfast")
        async with two_servers(url, agents) as (here, there):
            yield Place(here, there, cluster, disk)


async def database(cluster: Cluster, *statements: str) -> str:
    connection = await asyncpg.connect(cluster.url())
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
    await migrations.upgrade(cluster.url("holdfast"))
    return cluster.url("holdfast")


@asynccontextmanager
async def two_servers(url: str, agents: Path) -> AsyncIterator[tuple[Client, Client]]:
    async with (
        serving(url, agents=agents) as first,
        serving(url, agents=agents) as second,
        first.client() as here,
        second.client() as there,
    ):
        yield here, there


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Runs in the middle of what they do: one waits for a person, one for a tool, one speaks."""

    waiting: dict[str, Any]
    held: dict[str, Any]
    effects: Effects
    stream: Stream

    async def all_end(self, place: Place) -> None:
        heard = await self.stream.rest()
        assert text_of(heard) == (await place.there.run(heard[0]["run_id"]))["final_output"]
        assert heard == await place.here.log(f"/v1/runs/{heard[0]['run_id']}")
        path, answer = answer_to(self.waiting)
        await place.there.post(path, answer)
        for run in (self.waiting, self.held, heard[0]):
            await finished(place.there, run["run_id"])
        assert len(self.effects.lines) == 1


@asynccontextmanager
async def under_way(place: Place, folder: Path) -> AsyncIterator[UnderWay]:
    effects = Effects(folder / "effects")
    waiting = await place.here.settled((await place.here.start("quick", ASK))["run_id"])
    held = await place.here.start("quick", f'CALL send {{"file": "{effects.file}", "hold": true}}')
    await effects.happened()
    async with place.here.start_stream("talker", LONG_SPEECH) as stream:
        await stream.until("text_delta", 3)
        yield UnderWay(waiting, held, effects, stream)


async def test_tables_without_room_are_waited_for(short_of_tables: Place, tmp_path: Path) -> None:
    place = short_of_tables
    async with under_way(place, tmp_path) as runs:
        place.disk.fill()
        await place.start_until_refused("disk_full")
        await unready(place.here, "disk_full")
        runs.effects.release()
        run = await place.there.run(runs.waiting["run_id"])
        assert run["status"] == "waiting", "reading goes on"
        place.disk.make_room()
        await runs.all_end(place)
    await ready(place.here)
    await ready(place.there)
    await place.all_goes_on()


async def test_a_disk_that_stays_full_is_told_of_though_nobody_wants_to_write(
    short_of_tables: Place,
) -> None:
    place = short_of_tables
    place.disk.fill()
    await place.start_until_refused("disk_full")
    before = await failures(place.here)

    async def found_full_again() -> bool:
        assert (await place.here.http.get("/health")).status_code == 503
        return await failures(place.here) > before + 1

    await eventually(found_full_again)
    place.disk.make_room()
    await ready(place.here)
    await place.all_goes_on()


async def failures(client: Client) -> float:
    text = (await client.http.get("/metrics")).text
    name = re.escape('holdfast_database_failures_total{reason="disk_full"}')
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def test_a_server_that_dies_of_a_full_log_is_waited_for(
    short_of_log: Place, tmp_path: Path
) -> None:
    place = short_of_log
    async with under_way(place, tmp_path) as runs:
        place.disk.fill()
        await place.start_until_refused("unreachable")
        await unready(place.here, "unreachable")
        await unready(place.there, "unreachable")
        runs.effects.release()
        place.disk.make_room()

        async def works_again() -> bool:
            """It may have given up: then it is started, as it is by whoever looks after it."""
            if not place.cluster.runs:
                await asyncio.to_thread(place.cluster.start)
            return (await place.here.http.get("/health")).status_code == 200

        await eventually(works_again)
        await runs.all_end(place)
    assert re.search("PANIC: .* No space left on device", place.cluster.log)
    await ready(place.there)
    await place.all_goes_on()
