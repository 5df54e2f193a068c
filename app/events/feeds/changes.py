"""Reads the changes of a tenant's runs for all of its followers: at most four hints a second, and fewer if it has many."""

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
MAX_INTERVAL_SECONDS = 1.0
MESSAGES_PER_SECOND = 100
"""To all followers of a tenant together: with more than 25 of them, hints come less often."""
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
                await sleep(interval(feed.followers))
        finally:
            watch.close()

    return read


def interval(followers: int) -> float:
    """Seconds between two hints, so that many followers take little from the runs."""
    return min(MAX_INTERVAL_SECONDS, max(MIN_INTERVAL_SECONDS, followers / MESSAGES_PER_SECOND))


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
