"""A process whose event loop is blocked keeps its runs until `blocked_timeout`."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest

from app.storage.postgres.connect import RawConnection
from tests.support.conditions import Effects, eventually
from tests.support.event_order import check_run
from tests.support.servers import serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

TIMEOUT = 2.0
_WITH_HEARTBEAT = """
SELECT count(*) FROM runs r JOIN workers w ON w.id = r.owner
WHERE r.id = ANY($1) AND w.heartbeat_at > $2::timestamptz + $3::float8 * interval '1 second'
"""
_ATTEMPTS = "SELECT array_agg(attempt) FROM runs WHERE id = ANY($1)"


@pytest.fixture
async def database(shared_database_url: str) -> AsyncIterator[RawConnection]:
    connection = await asyncpg.connect(shared_database_url)
    yield connection
    await connection.close()


@pytest.fixture(scope="module")
async def other(shared_database_url: str, agents: Path) -> AsyncIterator[Client]:
    """A client of the server that takes over lost runs."""
    async with (
        serving(shared_database_url, agents=agents, heartbeat_timeout=TIMEOUT) as there,
        there.client() as client,
    ):
        yield client


async def test_a_briefly_blocked_process_keeps_its_runs(
    shared_database_url: str, agents: Path, other: Client, database: RawConnection, tmp_path: Path
) -> None:
    waiting, blocking = Effects(tmp_path / "held"), Effects(tmp_path / "blocking")
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(
            serving(shared_database_url, agents=agents, heartbeat_timeout=TIMEOUT, log_json=True)
        )
        client = await stack.enter_async_context(here.client())
        unaffected = await client.start("quick", waiting.held("send"))
        await waiting.happened()
        run = await client.start("quick", f'CALL block {{"file": "{blocking.file}"}}')
        await blocking.happened()
        since = await database.fetchval("SELECT now()")
        ids = [unaffected["id"], run["id"]]

        async def have_heartbeats() -> bool:
            alive: int = await database.fetchval(_WITH_HEARTBEAT, ids, since, 1.5 * TIMEOUT)
            return alive == len(ids)

        await eventually(have_heartbeats)
        # A busy machine may also block the loop at its start.
        lines = [line for line in here.log.splitlines() if "event_loop_blocked" in line]
        assert any("journey_tools.py" in line for line in lines), (
            "the log does not name the blocking function"
        )
        blocking.release()
        waiting.release()
        for run_id in ids:
            assert (await other.ended(run_id))["outcome"] == "succeeded"
            check_run(await other.log(f"/v1/runs/{run_id}"))
    assert await database.fetchval(_ATTEMPTS, ids) == [1, 1]
    assert len(waiting.lines) == len(blocking.lines) == 1


async def test_a_process_that_stays_blocked_too_long_loses_its_runs(
    shared_database_url: str, agents: Path, other: Client, tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(
            serving(
                shared_database_url,
                agents=agents,
                heartbeat_timeout=TIMEOUT,
                blocked_timeout=0.5,
                log_json=True,
            )
        )
        client = await stack.enter_async_context(here.client())
        started = await client.start("quick", f'CALL block {{"file": "{effects.file}"}}')
        await effects.happened()
        waiting = await other.settled(started["id"])
        assert waiting["waiting"]["tickets"][0]["kind"] == "outcome_unknown"
        await here.logged("event_loop_blocked_too_long")
        effects.release()
        await here.logged("ownership_lost", run_id=started["id"])
        await other.decide(waiting, "respond", result="it came through")
        done = await other.ended(started["id"])
    assert done["outcome"] == "succeeded"
    assert "it came through" in done["final_output"]
    assert len(effects.lines) == 1
