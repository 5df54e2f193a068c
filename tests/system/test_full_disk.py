"""Postgres on a full disk: no accepted request is lost, and runs wait for space and continue."""

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
MESSAGE_BYTES = 30_000
"""Bytes of a message that takes space."""


@dataclass(slots=True)
class Deployment:
    """Two servers on one database, a client of each, and the small disk."""

    here: Client
    there: Client
    cluster: Cluster
    disk: SmallDisk
    accepted: list[str] = field(default_factory=list)
    uncertain: list[dict[str, Any]] = field(default_factory=list)
    """Starts that were refused."""

    async def start_until_refused(self, *reasons: str) -> None:
        """Start runs until one is refused: every table has some free space left."""

        async def one() -> bool:
            text = random.randbytes(MESSAGE_BYTES // 2).hex()
            body = start_body("quick", text, run_id=str(uuid4()))
            answer = await self.here.http.post("/v1/runs", json=body)
            if answer.status_code == 202:
                self.accepted.append(body["run_id"])
                return False
            refused(answer, *reasons)
            self.uncertain.append(body)
            return True

        await eventually(one)

    async def all_runs_end(self) -> None:
        """Accepted runs end by themselves; refused starts are accepted now and take effect once."""
        for body in self.uncertain:
            assert (await self.there.post("/v1/runs", body, 202))["id"] == body["run_id"]
            await finished(self.there, body["run_id"])
        for run_id in self.accepted:
            await finished(self.here, run_id)
        assert await broken_invariants(self.cluster.url("holdfast")) == {}


@pytest.fixture
async def short_of_tables(agents: Path) -> AsyncIterator[Deployment]:
    """The tables are on the small disk, everything else is not."""
    with small_disk(TABLES_MEGABYTES) as disk, cluster_folder(within=disk.within) as cluster:
        cluster.make()
        cluster.start()
        url = await database(
            cluster,
            f"CREATE TABLESPACE small LOCATION '{disk.folder}'",
            "CREATE DATABASE holdfast TABLESPACE small",
        )
        async with two_servers(url, agents) as (here, there):
            yield Deployment(here, there, cluster, disk)


@pytest.fixture
async def short_of_log(agents: Path) -> AsyncIterator[Deployment]:
    """Only the write-ahead log is on the small disk: without space for it, Postgres stops."""
    with (
        small_disk(LOG_MEGABYTES) as disk,
        cluster_folder(within=disk.within, min_wal_size="2MB", max_wal_size="4MB") as cluster,
    ):
        cluster.make(f"--waldir={disk.folder / 'log'}", "--wal-segsize=1")
        cluster.start()
        url = await database(cluster, "CREATE DATABASE holdfast")
        async with two_servers(url, agents) as (here, there):
            yield Deployment(here, there, cluster, disk)


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
class OpenRuns:
    """Three open runs: one waits for a person, one for a tool, one streams text."""

    waiting: dict[str, Any]
    held: dict[str, Any]
    effects: Effects
    stream: Stream

    async def all_end(self, deployment: Deployment) -> None:
        received = await self.stream.rest()
        assert (
            text_of(received) == (await deployment.there.run(received[0]["run_id"]))["final_output"]
        )
        assert received == await deployment.here.log(f"/v1/runs/{received[0]['run_id']}")
        path, answer = answer_to(self.waiting)
        await deployment.there.post(path, answer)
        for run_id in (self.waiting["id"], self.held["id"], received[0]["run_id"]):
            await finished(deployment.there, run_id)
        assert len(self.effects.lines) == 1


@asynccontextmanager
async def under_way(deployment: Deployment, folder: Path) -> AsyncIterator[OpenRuns]:
    effects = Effects(folder / "effects")
    waiting = await deployment.here.settled((await deployment.here.start("quick", ASK))["id"])
    held = await deployment.here.start(
        "quick", f'CALL send {{"file": "{effects.file}", "hold": true}}'
    )
    await effects.happened()
    async with deployment.here.start_stream("talker", LONG_SPEECH) as stream:
        await stream.until("text_delta", 3)
        yield OpenRuns(waiting, held, effects, stream)


async def test_runs_wait_for_space_in_the_tablespace(
    short_of_tables: Deployment, tmp_path: Path
) -> None:
    deployment = short_of_tables
    async with under_way(deployment, tmp_path) as runs:
        deployment.disk.fill()
        await deployment.start_until_refused("disk_full")
        await unready(deployment.here, "disk_full")
        runs.effects.release()
        run = await deployment.there.run(runs.waiting["id"])
        assert run["status"] == "waiting", "reads work on a full disk"
        deployment.disk.make_room()
        await runs.all_end(deployment)
    await ready(deployment.here)
    await ready(deployment.there)
    await deployment.all_runs_end()


async def test_health_reports_a_full_disk_without_pending_writes(
    short_of_tables: Deployment,
) -> None:
    deployment = short_of_tables
    deployment.disk.fill()
    await deployment.start_until_refused("disk_full")
    before = await failures(deployment.here)

    async def found_full_again() -> bool:
        assert (await deployment.here.http.get("/health")).status_code == 503
        return await failures(deployment.here) > before + 1

    await eventually(found_full_again)
    deployment.disk.make_room()
    await ready(deployment.here)
    await deployment.all_runs_end()


async def failures(client: Client) -> float:
    text = (await client.http.get("/metrics")).text
    name = re.escape('holdfast_database_failures_total{reason="disk_full"}')
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def test_runs_wait_for_a_server_that_died_of_a_full_wal(
    short_of_log: Deployment, tmp_path: Path
) -> None:
    deployment = short_of_log
    async with under_way(deployment, tmp_path) as runs:
        deployment.disk.fill()
        await deployment.start_until_refused("unreachable")
        await unready(deployment.here, "unreachable")
        await unready(deployment.there, "unreachable")
        runs.effects.release()
        deployment.disk.make_room()

        async def is_healthy() -> bool:
            """Start Postgres again if it has stopped."""
            if not deployment.cluster.runs:
                await asyncio.to_thread(deployment.cluster.start)
            return (await deployment.here.http.get("/health")).status_code == 200

        await eventually(is_healthy)
        await runs.all_end(deployment)
    assert re.search("PANIC: .* No space left on device", deployment.cluster.log)
    await ready(deployment.there)
    await deployment.all_runs_end()
