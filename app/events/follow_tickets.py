"""Follow a tenant's ticket feed: notices about its tickets, in the order of the feed's numbers.

Notices aren't pushed: the feed is read after a hint, and periodically without one. So a reader gets each
notice once, no matter which process wrote it, and holds no connection in between.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import assert_never

from app.domain.errors import Gone
from app.domain.events.agent_events import TicketEvent, event_fields
from app.domain.events.ticket_events import (
    TicketDecided,
    TicketExpired,
    TicketOpened,
    TicketReminder,
    TicketVoid,
    TicketVoted,
)
from app.domain.ids import Tenant
from app.domain.tickets.decisions import Decision
from app.domain.tickets.opening import ticket_as_opened
from app.domain.tickets.ticket_json import ticket_to_json
from app.domain.tickets.tickets import NoticeKind, TicketFilter
from app.domain.timestamps import format_timestamp
from app.events.fanout.hub import Hub
from app.events.follow import FrameBatch, poll_interval
from app.events.sse_encoding import Frame, encoded
from app.storage.codec import storable_json
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.tickets import feed
from app.storage.tickets.feed import Notice, Notices

PAGE_SIZE = 200


class TicketFollower:
    """One reader of a ticket feed. Close it when done, also if it was never read."""

    def __init__(
        self,
        database: Database,
        hub: Hub,
        tenant: Tenant,
        wanted: TicketFilter,
        *,
        after: int,
        heartbeat: float,
        poll: float,
    ) -> None:
        self._database = database
        self._tenant = tenant
        self._wanted = wanted
        self._cursor = after
        self._heartbeat = heartbeat
        self._poll = poll
        self._watch = hub.watch_tickets(tenant)

    async def frames(self) -> AsyncGenerator[FrameBatch]:
        """Yield all wanted notices after the cursor. The stream never ends."""
        clock = asyncio.get_running_loop().time
        sent_at = clock()
        while True:
            found = await self._read()
            if found is not None and found.notices:
                yield [frame_of(notice) for notice in found.notices]
                sent_at = clock()
            elif clock() - sent_at >= self._heartbeat:
                yield None
                sent_at = clock()
            if found is None:
                await poll_interval()
                continue
            self._cursor = found.notices[-1].number if found.is_full else found.head
            if not found.is_full:
                left = max(0.0, self._heartbeat - (clock() - sent_at))
                await self._watch.wait(min(left, self._poll))

    async def _read(self) -> Notices | None:
        """The next notices; None during an outage."""
        try:
            return await feed.read_after(
                self._database, self._tenant, self._cursor, self._wanted, PAGE_SIZE
            )
        except DATABASE_UNAVAILABLE:
            return None

    def close(self) -> None:
        self._watch.close()


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
    database: Database, tenant: Tenant, wanted: TicketFilter, after: int, limit: int
) -> tuple[list[Frame], int, bool]:
    """The next notices, the cursor after them, and whether there are more."""
    found = await feed.read_after(database, tenant, after, wanted, limit)
    cursor = found.notices[-1].number if found.is_full else max(after, found.head)
    return [frame_of(notice) for notice in found.notices], cursor, found.is_full


def frame_of(notice: Notice) -> Frame:
    """A notice's frame: the same bytes at each reading, without later changes of the ticket."""
    event, ticket = _event_of(notice), notice.ticket
    return encoded(
        notice.number,
        format_timestamp(notice.at),
        ticket.thread_id,
        ticket.run_id,
        None,
        event.event_type,
        storable_json({"agent_id": ticket.agent_id, **event_fields(event)}),
    )


def _event_of(notice: Notice) -> TicketEvent:
    ticket, decision = notice.ticket, notice.decision
    match notice.kind:
        case NoticeKind.OPENED:
            return TicketOpened(ticket_to_json(ticket_as_opened(ticket)))
        case NoticeKind.DECIDED:
            return TicketDecided(ticket.id, *_decision_fields(decision))
        case NoticeKind.VOTED:
            return TicketVoted(ticket.id, *_decision_fields(decision))
        case NoticeKind.REMINDER:
            assert ticket.expires_at is not None
            left = max(0.0, (ticket.expires_at - notice.at).total_seconds())
            return TicketReminder(ticket.id, format_timestamp(ticket.expires_at), round(left, 3))
        case NoticeKind.EXPIRED:
            return TicketExpired(ticket.id, ticket.terms.on_expiry.value)
        case NoticeKind.VOID:
            return TicketVoid(ticket.id)
        case _:
            assert_never(notice.kind)


def _decision_fields(decision: Decision | None) -> tuple[str, str, str, str | None]:
    if decision is None:
        raise RuntimeError("a notice of a decision without one")
    answer = decision.answer
    return decision.decision_id, answer.action.value, decision.subject, answer.reason
