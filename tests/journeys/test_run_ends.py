"""The `run_end` hooks of a run that is cancelled while no worker executes it are called once, unless their worker dies."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.conditions import Effects, eventually
from tests.support.databases import Databases
from tests.support.event_order import check_run
from tests.support.invariants import broken_invariants
from tests.support.servers import serving, working
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

NO_FOLLOW_UP_LEFT = """
SELECT NOT EXISTS (SELECT FROM pending_run_ends)
    AND NOT EXISTS (SELECT FROM pgq.pgqueuer WHERE entrypoint = 'followup')
"""


@pytest.fixture
async def url(postgres: Databases) -> AsyncIterator[str]:
    async with postgres.fresh() as fresh:
        yield fresh


async def follow_ups_done(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await eventually(lambda: connection.fetchval(NO_FOLLOW_UP_LEFT))
    finally:
        await connection.close()


async def waiting(client: Client, prompt: str) -> dict[str, Any]:
    run = await client.settled((await client.start("tidy", prompt))["id"])
    assert run["status"] == "waiting"
    return run


async def cancelled(client: Client, run: dict[str, Any]) -> None:
    response = await client.http.post(f"/v1/runs/{run['id']}/cancel")
    assert response.status_code == 200, response.text
    assert response.json()["outcome"] == "cancelled"
    emitted = await client.log(f"/v1/runs/{run['id']}")
    check_run(emitted)
    assert emitted[-1]["termination"]["type"] == "cancelled"


async def test_the_next_worker_calls_the_hooks_of_a_run_cancelled_without_workers(
    url: str, agents: Path, tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    prompt = f'CALL put {{"file": "{effects.file}", "hold": false}}'
    async with serving(url, agents=agents, role="api") as api, api.client() as client:
        async with working(url, agents=agents) as worker:
            run = await waiting(client, prompt)
            worker.kill()
            await worker.gone()
        await cancelled(client, run)
        assert effects.lines == []
        async with working(url, agents=agents):
            await effects.happened()
            await follow_ups_done(url)
        assert effects.keys == [run["id"]]
    assert await broken_invariants(url) == {}


async def test_a_hook_whose_worker_was_killed_is_called_again_after_its_claim(
    url: str, agents: Path, tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    async with serving(url, agents=agents, role="api") as api, api.client() as client:
        async with working(url, agents=agents) as worker:
            run = await waiting(client, effects.held("put"))
            await cancelled(client, run)
            await effects.happened()
            worker.kill()
            await worker.gone()
        effects.release()
        connection = await asyncpg.connect(url)
        await connection.execute(
            "UPDATE pending_run_ends SET claimed_until = now(), created_at = now() - interval '1 hour'"
        )
        await connection.close()
        async with working(url, agents=agents):
            await follow_ups_done(url)
        assert effects.keys == [run["id"]] * 2
    assert await broken_invariants(url) == {}
