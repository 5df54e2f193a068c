"""Followers of a tenant share one query and one encoding; tenants share nothing."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from app.clock import yield_to_loop
from app.domain.ids import AgentId, Tenant
from app.domain.structs import replace
from app.events.fanout.hub import Hub
from app.events.feeds import changes, shared_feed
from app.events.feeds.shared_feed import FeedFailed
from app.events.feeds.tenant_feeds import TenantFeeds
from app.events.follow import FrameBatch
from app.events.follow_changes import ChangeFollower
from app.events.follow_tickets import NoticeFilter, TicketFollower
from app.events.sse_encoding import Frame
from app.storage.postgres.database import Database
from app.storage.runs import statuses
from app.storage.tickets import feed as ticket_feed
from tests.support.counted_statements import Statements, counted_statements
from tests.support.emitters import TIMEOUT_SECONDS
from tests.support.open_tickets import open_tickets
from tests.support.stored_runs import TENANT, admit, running, some_run, ticket_of, worker

pytestmark = pytest.mark.anyio

OTHER = Tenant("globex")


class Reader:
    """A follower's frames, one batch at a time."""

    def __init__(self, frames: AsyncGenerator[FrameBatch]) -> None:
        self._frames = frames

    async def next(self) -> list[Frame]:
        """The next batch that is no heartbeat."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                if batch := await anext(self._frames):
                    return list(batch)

    async def hint(self) -> dict[str, Any]:
        [frame] = await self.next()
        return hint_in(frame)


def hint_in(frame: Frame) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(frame.json)
    return found


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def feeds(database: Database, hub: Hub) -> TenantFeeds:
    return TenantFeeds(database, hub, poll=TIMEOUT_SECONDS)


@pytest.fixture
def statements() -> Iterator[Statements]:
    with counted_statements() as counted:
        yield counted


@asynccontextmanager
async def following_changes(
    feeds: TenantFeeds, tenant: Tenant = TENANT, *, heartbeat: float = TIMEOUT_SECONDS
) -> AsyncIterator[Reader]:
    """A follower that has got its first reset."""
    follower = ChangeFollower(feeds, tenant, heartbeat=heartbeat)
    frames = follower.frames()
    try:
        reader = Reader(frames)
        assert (await reader.hint())["reset"]
        await yield_to_loop()
        yield reader
    finally:
        await frames.aclose()
        follower.close()


@asynccontextmanager
async def following_tickets(
    feeds: TenantFeeds, after: int, wanted: NoticeFilter = NoticeFilter(), tenant: Tenant = TENANT
) -> AsyncIterator[Reader]:
    follower = TicketFollower(feeds, tenant, wanted, after=after, heartbeat=TIMEOUT_SECONDS)
    frames = follower.frames()
    try:
        yield Reader(frames)
    finally:
        await frames.aclose()
        follower.close()


async def opened(database: Database, hub: Hub, name: str, *, tool: str = "transfer") -> str:
    """The id of a ticket of a new run, whose notice is announced."""
    run = await running(database.pool)
    ticket = replace(ticket_of(run, name), tool_name=tool)
    async with database.transaction() as connection:
        await open_tickets(connection, run.tenant, [ticket])
    hub.hint((run.tenant, run.thread_id))
    return ticket.id


# --- changes --------------------------------------------------------------------------------------


async def test_another_follower_of_changes_costs_no_further_query_or_encoding(
    database: Database, hub: Hub, feeds: TenantFeeds, statements: Statements
) -> None:
    run = await running(database.pool)
    statements.take()
    async with (
        following_changes(feeds) as first,
        following_changes(feeds) as second,
        following_changes(feeds) as third,
    ):
        assert statements.take() == []
        hub.hint((run.tenant, run.thread_id))
        received = [await reader.next() for reader in (first, second, third)]
    assert len(statements) == 1
    assert received[0][0] is received[1][0] is received[2][0]
    assert [each["id"] for each in hint_in(received[0][0])["runs"]] == [run.id]


async def test_no_tenant_gets_a_hint_of_another(
    database: Database, hub: Hub, feeds: TenantFeeds
) -> None:
    ours = await running(database.pool)
    theirs = some_run(tenant=OTHER)
    await admit(database.pool, theirs, await worker(database.pool))
    async with following_changes(feeds) as us, following_changes(feeds, OTHER) as them:
        hub.hint((ours.tenant, ours.thread_id))
        assert [each["id"] for each in (await us.hint())["runs"]] == [ours.id]
        # A thread of ours is unknown there, so that its run isn't named.
        hub.hint((OTHER, ours.thread_id))
        hub.hint((OTHER, theirs.thread_id))
        assert [each["id"] for each in (await them.hint())["runs"]] == [theirs.id]


async def test_the_last_followers_end_stops_the_queries(
    database: Database, hub: Hub, feeds: TenantFeeds, statements: Statements
) -> None:
    run = await running(database.pool)
    async with following_changes(feeds), following_tickets(feeds, 0) as tickets:
        await opened(database, hub, "ticket-1")
        await tickets.next()
    statements.take()
    async with following_changes(feeds, OTHER) as other:
        hub.hint((run.tenant, run.thread_id))
        hub.hint((OTHER, run.thread_id))
        await other.hint()
    assert len(statements) == 1


async def test_a_follower_that_comes_back_gets_changes_again(
    database: Database, hub: Hub, feeds: TenantFeeds
) -> None:
    run = await running(database.pool)
    for _ in range(2):
        async with following_changes(feeds) as reader:
            hub.hint((run.tenant, run.thread_id))
            assert (await reader.hint())["runs"]


async def test_a_slow_follower_gets_a_reset_and_slows_no_other(
    database: Database, hub: Hub, feeds: TenantFeeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_feed, "MAX_KEPT_BYTES", 300)
    monkeypatch.setattr(changes, "MIN_INTERVAL_SECONDS", 0.0)
    run = await running(database.pool)
    async with following_changes(feeds) as slow, following_changes(feeds) as quick:
        for _ in range(3):
            hub.hint((run.tenant, run.thread_id))
            assert (await quick.hint())["runs"]
        assert (await slow.hint())["reset"]
        hub.hint((run.tenant, run.thread_id))
        assert await slow.next() == await quick.next()


@pytest.mark.parametrize(("followers", "seconds"), [(1, 0.25), (25, 0.25), (50, 0.5), (900, 1.0)])
def test_many_followers_get_hints_less_often(followers: int, seconds: float) -> None:
    assert changes.interval(followers) == seconds


async def test_a_silent_feed_has_a_heartbeat_for_each_follower(feeds: TenantFeeds) -> None:
    follower = ChangeFollower(feeds, TENANT, heartbeat=0.0)
    frames = follower.frames()
    try:
        assert await anext(frames)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await anext(frames) is None
    finally:
        await frames.aclose()
        follower.close()


async def test_an_outage_ends_in_a_reset(
    database: Database, hub: Hub, feeds: TenantFeeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await running(database.pool)
    async with following_changes(feeds) as reader:
        with monkeypatch.context() as outage:
            outage.setattr(statuses, "of_threads", interrupted)
            hub.hint((run.tenant, run.thread_id))
            assert (await reader.hint())["reset"]


async def interrupted(*_: Any) -> Any:
    raise ConnectionResetError


async def test_followers_of_a_failed_feed_end_and_the_next_one_gets_a_new_feed(
    database: Database, hub: Hub, feeds: TenantFeeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await running(database.pool)
    async with following_changes(feeds) as reader:
        with monkeypatch.context() as broken:
            broken.setattr(statuses, "of_threads", defective)
            hub.hint((run.tenant, run.thread_id))
            with pytest.raises(FeedFailed):
                await reader.next()
        async with following_changes(feeds) as another:
            hub.hint((run.tenant, run.thread_id))
            assert (await another.hint())["runs"]


async def defective(*_: Any) -> Any:
    raise LookupError("a defect")


# --- tickets --------------------------------------------------------------------------------------


async def test_another_follower_of_tickets_costs_no_further_query_or_encoding(
    database: Database, hub: Hub, feeds: TenantFeeds, statements: Statements
) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(following_tickets(feeds, 0))
        await opened(database, hub, "ticket-1")
        assert [frame.seq for frame in await first.next()] == [1]
        await opened(database, hub, "ticket-2")
        assert [frame.seq for frame in await first.next()] == [2]
        others = [
            await stack.enter_async_context(following_tickets(feeds, after))
            for after in (2, 2, 2, 2, 1)
        ]
        statements.take()
        await opened(database, hub, "ticket-3")
        [frame] = await first.next()
        received = [await other.next() for other in others]
        # The reading before may have been ahead of its notification, which then causes one more.
        assert (
            sum("SELECT EXISTS (SELECT FROM ticket_feed" in text for text in statements.take()) <= 2
        )
    assert all(frames[-1] is frame for frames in received)
    assert [other.seq for other in received[-1]] == [2, 3]


async def test_an_old_cursor_is_continued_without_gap_or_duplicate(
    database: Database, hub: Hub, feeds: TenantFeeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_feed, "MAX_KEPT_BYTES", 2_000)
    async with following_tickets(feeds, 0) as live:
        seen: list[int] = []
        for number in range(1, 6):
            await opened(database, hub, f"ticket-{number}")
            seen += [frame.seq for frame in await live.next()]
        async with following_tickets(feeds, 0) as late:
            read: list[int] = []
            while len(read) < 5:
                read += [frame.seq for frame in await late.next()]
            await opened(database, hub, "ticket-6")
            read += [frame.seq for frame in await late.next()]
    assert seen == [1, 2, 3, 4, 5]
    assert read == [1, 2, 3, 4, 5, 6]


async def test_a_follower_gets_only_the_tickets_that_it_wants(
    database: Database, hub: Hub, feeds: TenantFeeds
) -> None:
    async with (
        following_tickets(feeds, 0, NoticeFilter(tool_name="transfer")) as transfers,
        following_tickets(feeds, 0, NoticeFilter(AgentId("clerk"), "pay")) as payments,
    ):
        # The first two are read by each follower, the others by the shared feed.
        for number in (1, 3):
            await opened(database, hub, f"ticket-{number}", tool="transfer")
            await opened(database, hub, f"ticket-{number + 1}", tool="pay")
            assert [frame.seq for frame in await transfers.next()] == [number]
            assert [frame.seq for frame in await payments.next()] == [number + 1]


async def test_no_tenant_gets_a_ticket_of_another(
    database: Database, hub: Hub, feeds: TenantFeeds
) -> None:
    theirs = some_run(tenant=OTHER)
    await admit(database.pool, theirs, await worker(database.pool))
    async with (
        following_tickets(feeds, 0) as us,
        following_tickets(feeds, 0, tenant=OTHER) as them,
    ):
        ours = await opened(database, hub, "ticket-1")
        [frame] = await us.next()
        assert hint_in(frame)["ticket"]["id"] == ours
        ticket = ticket_of(theirs)
        async with database.transaction() as connection:
            await open_tickets(connection, OTHER, [ticket])
        hub.hint((OTHER, theirs.thread_id))
        [frame] = await them.next()
        assert hint_in(frame)["ticket"]["id"] == ticket.id
    assert (
        await ticket_feed.read_after(database, OTHER, 0, NoticeFilter().of_tickets, 10)
    ).head == 1
