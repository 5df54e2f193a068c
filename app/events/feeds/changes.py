"""Reads the changes of a tenant's runs for all of its followers: at most four hints a second."""

from typing import Any

from app.clock import sleep
from app.domain.ids import Tenant
from app.domain.json_values import compact
from app.events.fanout.hub import Hub, Noted
from app.events.feeds.shared_feed import Entry, ReadFeed, SharedFeed
from app.events.follow import poll_interval
from app.events.sse_encoding import HintFrame
from app.storage.postgres.database import DATABASE_UNAVAILABLE, RawPool
from app.storage.runs import statuses
from app.storage.runs.statuses import RunStatusNow

MIN_INTERVAL_SECONDS = 0.25
RESET = compact({"reset": True, "tickets": True, "runs": []})


def changes_of(pool: RawPool, hub: Hub, tenant: Tenant) -> ReadFeed:
    """Publish one hint with all changes since the one before, and `reset` if some of them are unknown."""

    async def read(feed: SharedFeed) -> None:
        watch = hub.watch_changes(tenant)
        try:
            while True:
                await watch.wait()
                try:
                    hint = await _hint(pool, tenant, watch.take())
                except DATABASE_UNAVAILABLE:
                    watch.mark_missed()
                    await poll_interval()
                    continue
                number = feed.head + 1
                feed.publish([Entry(number, HintFrame(hint))], number)
                await sleep(MIN_INTERVAL_SECONDS)
        finally:
            watch.close()

    return read


async def _hint(pool: RawPool, tenant: Tenant, noted: Noted) -> str:
    if noted.missed:
        return RESET
    found = await statuses.of_threads(pool, tenant, noted.threads)
    runs = [_run_json(run) for run in found]
    return compact({"reset": False, "tickets": noted.tickets, "runs": runs})


def _run_json(run: RunStatusNow) -> dict[str, Any]:
    return {
        "id": run.run_id,
        "thread_id": run.thread_id,
        "agent_id": run.agent_id,
        "status": run.status.value,
        "outcome": None if run.outcome is None else run.outcome.value,
    }
