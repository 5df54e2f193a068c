"""Follow a tenant's ticket feed: notices about its tickets, in the order of the feed's numbers.

Notices aren't pushed: the feed is read after a hint, and periodically without one. So a reader gets each
notice once, no matter which process wrote it, and holds no connection in between. Followers that have caught up
share one reading.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct

from app.domain.errors import Gone
from app.domain.ids import AgentId, Tenant
from app.domain.tickets.tickets import TicketFilter
from app.events.feeds.shared_feed import Entry
from app.events.feeds.tenant_feeds import TenantFeeds
from app.events.feeds.tickets import PAGE_SIZE, frame_of
from app.events.follow import FrameBatch, poll_interval
from app.events.sse_encoding import Frame
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.tickets import feed


class NoticeFilter(Struct, frozen=True):
    """Only notices about tickets of this agent and this tool."""

    agent_id: AgentId | None = None
    tool_name: str | None = None

    @property
    def of_tickets(self) -> TicketFilter:
        return TicketFilter(agent_id=self.agent_id, tool_name=self.tool_name)

    def includes(self, entry: Entry) -> bool:
        return self.agent_id in (None, entry.agent_id) and self.tool_name in (None, entry.tool_name)


class TicketFollower:
    """One reader of a ticket feed. Close it when done, also if it was never read."""

    is_ready = False
    has_ended = False

    def __init__(
        self,
        feeds: TenantFeeds,
        tenant: Tenant,
        wanted: NoticeFilter,
        *,
        after: int,
        heartbeat: float,
    ) -> None:
        self._database = feeds.database
        self._tenant = tenant
        self._wanted = wanted
        self._cursor = after
        self._heartbeat = heartbeat
        self._feed = feeds.tickets(tenant)

    async def frames(self) -> AsyncGenerator[FrameBatch]:
        """Yield all wanted notices after the cursor. The stream never ends."""
        clock = asyncio.get_running_loop().time
        sent_at = clock()
        while True:
            found = self._take_shared()
            is_shared = found is not None
            if found is None:
                found = await self._read_older()
            if found:
                yield found
                sent_at = clock()
            elif clock() - sent_at >= self._heartbeat:
                yield None
                sent_at = clock()
            if found is None:
                await poll_interval()
            elif is_shared:
                await self._feed.wait(self._cursor, max(0.0, self._heartbeat - (clock() - sent_at)))

    def _take_shared(self) -> Sequence[Frame] | None:
        """The wanted notices after the cursor; None if the shared feed doesn't have all of them."""
        entries = self._feed.after(self._cursor)
        if entries is None:
            return None
        self._cursor = max(self._cursor, self._feed.head)
        return [entry.frame for entry in entries if self._wanted.includes(entry)]

    async def _read_older(self) -> Sequence[Frame] | None:
        """The next page, up to where the shared feed begins; None during an outage."""
        try:
            found = await feed.read_after(
                self._database, self._tenant, self._cursor, self._wanted.of_tickets, PAGE_SIZE
            )
        except DATABASE_UNAVAILABLE:
            return None
        self._cursor = found.next_cursor
        if not found.is_full:
            self._feed.begin(self._cursor)
        return [frame_of(notice) for notice in found.notices]

    def close(self) -> None:
        self._feed.leave()


async def first_cursor(database: Database, tenant: Tenant, *, now: bool) -> int:
    """The cursor before the oldest kept notice; with `now`, that of the newest notice."""
    found = await feed.read_after(database, tenant, 0, TicketFilter(), 1)
    return found.head if now else found.pruned_to


async def check_cursor(database: Database, tenant: Tenant, after: int) -> int:
    """Returns the cursor, or refuses one that can't be continued."""
    found = await feed.read_after(database, tenant, after, TicketFilter(), 1)
    if found.pruned_to <= after <= found.head:
        return after
    if after > found.head:
        reason = f"Notice {after} doesn't exist; the newest is {found.head}."
    else:
        reason = f"Notices up to {found.pruned_to} were old and have been removed."
    raise Gone(
        "cursor_expired",
        f"{reason} Read the open tickets, and follow from now.",
        oldest_available=found.pruned_to + 1,
        snapshot="/v1/tickets?status=open",
    )


async def read_page(
    database: Database, tenant: Tenant, wanted: NoticeFilter, after: int, limit: int
) -> tuple[list[Frame], int, bool]:
    """The next notices, the cursor after them, and whether there are more."""
    found = await feed.read_after(database, tenant, after, wanted.of_tickets, limit)
    cursor = max(after, found.next_cursor)
    return [frame_of(notice) for notice in found.notices], cursor, found.is_full
