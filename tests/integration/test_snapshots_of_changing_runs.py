"""Snapshots of runs that start, wait, end, are cancelled and deleted meanwhile, also if their reader goes away."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from random import Random

import httpx2
import pytest

from tests.integration.conftest import AGENTS
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

SEED = 20261120
LIVES = 30
AT_ONCE = 6
READERS = 6
CALLS = 'CALL add {"a": 1, "b": 2} CALL risky {"what": "it"}'


@pytest.fixture(scope="module")
async def server(served_database: str) -> AsyncIterator[Server]:
    """With few connections, so that requests wait for them and are given up then too."""
    async with serving(
        served_database, agents=AGENTS, pool_size=3, pool_timeout=60.0, heartbeat_timeout=60.0
    ) as running:
        yield running


class Runs:
    """Runs that live at the same time, and the statuses of what was asked about them."""

    def __init__(self, client: Client, random: Random) -> None:
        self.client = client
        self.random = random
        self.known: list[tuple[str, str]] = []
        self.statuses: Counter[int] = Counter()
        self.bad: list[str] = []

    async def live(self) -> None:
        """Start a run, and end it in one of several ways."""
        agent, prompt = self.random.choice([("quick", CALLS), ("talker", "one two three " * 5)])
        run = await self.client.start(agent, prompt)
        self.known.append((run["id"], run["thread_id"]))
        end = self.random.choice(["decide", "cancel", "cancel early", "delete"])
        if end != "cancel early" and agent == "quick":
            run = await self.client.settled(run["id"])
        if end == "decide" and agent == "quick":
            await self.client.decide(run, "approve")
        elif end != "decide":
            await self.client.http.post(f"/v1/runs/{run['id']}/cancel", json={"reason": "enough"})
        await self.client.ended(run["id"])
        if end == "delete":
            deleted = await self.client.http.delete(f"/v1/threads/{run['thread_id']}")
            assert deleted.status_code in (200, 204), deleted.text

    async def read(self) -> None:
        """Ask for snapshots, and give up some of the requests at any moment."""
        while True:
            run_id, thread_id = self.random.choice(self.known[-AT_ONCE:])
            path = self.random.choice(
                [f"/v1/runs/{run_id}/snapshot"] * 3
                + [f"/v1/threads/{thread_id}/snapshot", f"/v1/runs/{run_id}/explain"]
            )
            patience = self.random.choice([None, self.random.random() / 20])
            try:
                async with asyncio.timeout(patience):
                    response = await self.client.http.get(path)
            except (TimeoutError, httpx2.TransportError):
                continue
            self.statuses[response.status_code] += 1
            if response.status_code not in (200, 404):
                self.bad.append(f"{path}: {response.text}")


async def test_no_snapshot_fails_while_runs_start_and_end(client: Client, server: Server) -> None:
    runs = Runs(client, Random(SEED))
    await runs.live()
    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(runs.read()) for _ in range(READERS)]
        for _ in range(LIVES // AT_ONCE):
            await asyncio.gather(*(runs.live() for _ in range(AT_ONCE)))
        for reader in readers:
            reader.cancel()
    assert runs.bad == [], server.log[-5000:]
    assert runs.statuses[200]
