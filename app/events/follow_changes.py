"""Follow the changes of a tenant's runs: hints for lists, which name runs and have no numbers.

A list reads what it shows again after a hint. So a lost hint costs time and no row. At most four hints a second are
sent, each with all changes since the one before. All followers of a tenant share them; many get fewer.
"""

import asyncio
from collections.abc import AsyncGenerator

from app.clock import sleep
from app.domain.ids import Tenant
from app.events.feeds.changes import MIN_INTERVAL_SECONDS, RESET
from app.events.feeds.tenant_feeds import TenantFeeds
from app.events.follow import FrameBatch
from app.events.sse_encoding import HintFrame

_RESET = HintFrame(RESET)


class ChangeFollower:
    """One reader of a tenant's changes. Close it when done, also if it was never read."""

    is_ready = True
    has_ended = False

    def __init__(self, feeds: TenantFeeds, tenant: Tenant, *, heartbeat: float) -> None:
        self._heartbeat = heartbeat
        self._feed = feeds.changes(tenant)
        self._cursor = self._feed.head

    async def frames(self) -> AsyncGenerator[FrameBatch]:
        """Yield a reset first, because the reader's lists are older than its stream. The stream never ends.

        A reader that is too slow for the shared feed gets another reset.
        """
        clock = asyncio.get_running_loop().time
        yield [_RESET]
        sent_at = clock()
        while True:
            await self._feed.wait(self._cursor, max(0.0, self._heartbeat - (clock() - sent_at)))
            if (early := sent_at + MIN_INTERVAL_SECONDS - clock()) > 0:
                await sleep(early)
            entries = self._feed.after(self._cursor)
            if entries is None:
                self._cursor = self._feed.head
                yield [_RESET]
            elif entries:
                # One at a time: a reader that was late gets at most four a second, too.
                self._cursor = entries[0].number
                yield [entries[0].frame]
            else:
                yield None
            sent_at = clock()

    def close(self) -> None:
        self._feed.leave()
