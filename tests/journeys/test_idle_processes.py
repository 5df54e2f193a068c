"""What processes log that have nothing to do: after the banner nothing, at the default level."""

from datetime import timedelta

import asyncpg
import pytest

from tests.journeys.test_cli_processes import AGENTS
from tests.support.conditions import eventually
from tests.support.servers import serving, working

pytestmark = pytest.mark.anyio

QUICK = {"retention_interval": 0.3, "log_poll": 0.2, "sweep_interval": 0.1}
"""Each periodic job has many turns while a test watches."""
WATCHED = timedelta(seconds=4)


async def test_idle_processes_log_nothing(database_url: str) -> None:
    async with (
        serving(database_url, agents=AGENTS, **QUICK) as server,
        working(database_url, agents=AGENTS, **QUICK) as worker,
    ):
        printed = (server.log, worker.log)
        await heartbeats_for(database_url, WATCHED)
        assert (server.log, worker.log) == printed


async def test_a_run_that_waits_for_a_worker_is_not_logged_in_each_sweep(
    database_url: str,
) -> None:
    async with (
        serving(database_url, agents=AGENTS, role="api", log_json=1, **QUICK) as server,
        server.client() as client,
    ):
        run = await client.start("demo", "Hello.")
        await heartbeats_for(database_url, WATCHED)
        assert (await client.run(run["id"]))["status"] == "created"
        assert "sweep_done" not in server.log
        async with working(database_url, agents=AGENTS, **QUICK):
            assert (await client.settled(run["id"]))["outcome"] == "succeeded"


async def heartbeats_for(database_url: str, time: timedelta) -> None:
    """Wait until the heartbeats of all processes have gone on for so long, by the database's clock."""
    connection = await asyncpg.connect(database_url)
    try:
        begin = await connection.fetchval("SELECT max(heartbeat_at) FROM workers")

        async def has_passed() -> bool:
            oldest = await connection.fetchval("SELECT min(heartbeat_at) FROM workers")
            return bool(oldest - begin >= time)

        await eventually(has_passed)
    finally:
        await connection.close()
