"""Reads the notices of a tenant's ticket feed for all of its followers, and encodes each once."""

from typing import assert_never

from app.clock import sleep
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
from app.events.feeds.shared_feed import Entry, ReadFeed, SharedFeed
from app.events.follow import poll_interval
from app.events.sse_encoding import Frame, encoded
from app.storage.codec import storable_json
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.tickets import feed as ticket_feed
from app.storage.tickets.feed import Notice

PAGE_SIZE = 200
MIN_INTERVAL_SECONDS = 0.1
"""Notices that come together need one reading."""
_ALL_TICKETS = TicketFilter()


def tickets_of(database: Database, hub: Hub, tenant: Tenant, *, poll: float) -> ReadFeed:
    """Read the feed after a notification, and after `poll` seconds without one."""

    async def read(feed: SharedFeed) -> None:
        watch = hub.watch_tickets(tenant)
        try:
            while True:
                try:
                    found = await ticket_feed.read_after(
                        database, tenant, feed.head, _ALL_TICKETS, PAGE_SIZE
                    )
                except DATABASE_UNAVAILABLE:
                    await poll_interval()
                    continue
                feed.publish([_entry(notice) for notice in found.notices], found.next_cursor)
                if not found.is_full:
                    await sleep(MIN_INTERVAL_SECONDS)
                    await watch.wait(poll)
        finally:
            watch.close()

    return read


def _entry(notice: Notice) -> Entry:
    ticket = notice.ticket
    return Entry(notice.number, frame_of(notice), ticket.agent_id, ticket.tool_name)


def frame_of(notice: Notice) -> Frame:
    """A notice's frame: the same bytes at each reading, without later changes of the ticket."""
    event, ticket = _event_of(notice), notice.ticket
    return encoded(
        notice.number,
        notice.at,
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
