"""Follow the changes of a tenant's runs: hints for lists, which name runs and have no numbers.

A list reads what it shows again after a hint. So a lost hint costs time and no row. At most four hints a second are
sent, each with all changes since the one before.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from app.clock import sleep
from app.domain.ids import Tenant
from app.domain.json_values import compact
from app.events.fanout.hub import Hub
from app.events.follow import FrameBatch, poll_interval
from app.events.sse_encoding import HintFrame
from app.storage.postgres.database import DATABASE_UNAVAILABLE, RawPool
from app.storage.runs import statuses
from app.storage.runs.statuses import RunStatusNow

MIN_INTERVAL_SECONDS = 0.25
RESET = compact({"reset": True, "tickets": True, "runs": []})


class ChangeFollower:
    """One reader of a tenant's changes. Close it when done, also if it was never read."""

    def __init__(self, pool: RawPool, hub: Hub, tenant: Tenant, *, heartbeat: float) -> None:
        self._pool = pool
        self._tenant = tenant
        self._heartbeat = heartbeat
        self._watch = hub.watch_changes(tenant)

    async def frames(self) -> AsyncGenerator[FrameBatch]:
        """Yield a reset first, because the reader's lists are older than this watch. The stream never ends."""
        yield [HintFrame(RESET)]
        clock = asyncio.get_running_loop().time
        sent_at = clock()
        while True:
            await self._watch.wait(max(0.0, self._heartbeat - (clock() - sent_at)))
            if (early := sent_at + MIN_INTERVAL_SECONDS - clock()) > 0:
                await sleep(early)
            noted = self._watch.take()
            if noted.is_empty:
                yield None
            elif noted.missed:
                yield [HintFrame(RESET)]
            else:
                try:
                    found = await statuses.of_threads(self._pool, self._tenant, noted.threads)
                except DATABASE_UNAVAILABLE:
                    self._watch.mark_missed()
                    await poll_interval()
                    continue
                runs = [_run_json(run) for run in found]
                hint = {"reset": False, "tickets": noted.tickets, "runs": runs}
                yield [HintFrame(compact(hint))]
            sent_at = clock()

    def close(self) -> None:
        self._watch.close()


def _run_json(run: RunStatusNow) -> dict[str, Any]:
    return {
        "id": run.run_id,
        "thread_id": run.thread_id,
        "agent_id": run.agent_id,
        "status": run.status.value,
        "outcome": None if run.outcome is None else run.outcome.value,
    }
