"""Snapshots of runs and threads: what a page shows, and the event id to follow from."""

from collections.abc import Sequence

from msgspec import Struct

from app.clock import yield_to_loop
from app.context import ServiceContext
from app.domain.events.activities import (
    MAX_ACTIVITY_BYTES,
    MAX_ACTIVITY_CHANGES,
    Activities,
    ActivityFold,
)
from app.domain.events.partial_message import PartialMessage, partial_message_of
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.principals import Principal, Scope
from app.domain.runs.rate_limits import partial_answer_of
from app.domain.runs.runs import Running, RunRecord
from app.domain.slices import Order, PageRequest, Slice
from app.domain.structs import replace
from app.domain.threads.messages import LoggedMessage, MessageFilter, Visibility
from app.domain.threads.threads import Thread
from app.queries.records import RunView, found_run, found_thread, with_open_tickets
from app.storage.events import event_log
from app.storage.postgres.database import Connection
from app.storage.runs import runs
from app.storage.threads import messages

DEFAULT_SNAPSHOT_MESSAGES = 1_000
MAX_SNAPSHOT_MESSAGES = 10_000
MAX_SNAPSHOT_PAGES = 20
"""Pages of the log that a snapshot reads. A page has at most `MAX_PAGE_BYTES`, or one large message."""
_MESSAGES_PER_PAGE = MAX_SNAPSHOT_MESSAGES // MAX_SNAPSHOT_PAGES
_CHANGES_AT_ONCE = 10
"""Patch operations that are applied before the event loop gets control."""


class RunSnapshot(Struct, frozen=True):
    """All that a client needs to show a run without reading its past events."""

    view: RunView
    messages: Slice[LoggedMessage]
    """The newest messages, oldest first; `has_more` if older ones are left out."""
    open_parts: PartialMessage
    activities: Activities
    last_event_id: int


class ThreadSnapshot(Struct, frozen=True):
    """All that a client needs to show a thread. `view` is its open run."""

    thread: Thread
    view: RunView | None
    messages: Slice[LoggedMessage]
    open_parts: PartialMessage
    activities: Activities
    last_event_id: int


async def read_run_snapshot(
    ctx: ServiceContext,
    principal: Principal,
    run_id: RunId,
    messages_limit: int = DEFAULT_SNAPSHOT_MESSAGES,
) -> RunSnapshot:
    """Read a run, its newest messages and its unfinished work, all as of the same moment."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.transaction() as connection:
        await runs.use_one_snapshot(connection)
        record = await found_run(connection, principal.tenant, run_id)
        head = await event_log.next_seq(connection, principal.tenant, record.thread_id) - 1
        log = await _log_of_run(connection, record, messages_limit)
        parts = await _open_parts(connection, record, log)
        activities = await _activities(connection, record)
        view = await with_open_tickets(connection, record)
    return RunSnapshot(view, log, parts, activities, head)


async def read_thread_snapshot(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    messages_limit: int = DEFAULT_SNAPSHOT_MESSAGES,
) -> ThreadSnapshot:
    """Read a thread, its newest messages and what its open run is doing, all as of the same moment."""
    principal.require(Scope.RUNS_READ)
    tenant = principal.tenant
    async with ctx.database.transaction() as connection:
        await runs.use_one_snapshot(connection)
        thread = await found_thread(connection, tenant, thread_id)
        head = await event_log.next_seq(connection, tenant, thread_id) - 1
        wanted = MessageFilter(visibility=Visibility.ALL)
        log = await _newest(connection, tenant, thread_id, wanted, messages_limit)
        if thread.open_run_id is None:
            return ThreadSnapshot(thread, None, log, PartialMessage(), Activities(), head)
        record = await found_run(connection, tenant, thread.open_run_id)
        parts = await _open_parts(connection, record, log)
        activities = await _activities(connection, record)
        view = await with_open_tickets(connection, record)
    return ThreadSnapshot(thread, view, log, parts, activities, head)


async def _open_parts(
    connection: Connection, record: RunRecord, log: Sequence[LoggedMessage]
) -> PartialMessage:
    """What a run has written of its open message; only the calls if the message is in the log."""
    parts = PartialMessage()
    if isinstance(record.state, Running):
        events = await event_log.of_open_step(
            connection, record.tenant, record.thread_id, record.id, record.events_from
        )
        parts = partial_message_of(events)
    if (partial := partial_answer_of(record.run_state)) is not None and not record.is_done:
        parts = replace(parts, text=partial.text + parts.text)
    if any(entry.message.id == parts.message_id for entry in log):
        parts = replace(parts, text="", reasoning="")
    return parts


async def _activities(connection: Connection, record: RunRecord) -> Activities:
    """The activities that fit into a snapshot. Patches are applied in slices: other requests are served in
    between."""
    events = await event_log.activity_events(
        connection,
        record.tenant,
        record.thread_id,
        record.id,
        record.events_from,
        max_bytes=MAX_ACTIVITY_BYTES,
        max_changes=MAX_ACTIVITY_CHANGES,
    )
    fold = ActivityFold()
    changes = 0
    for event_type, fields in events:
        for _ in fold.apply(event_type, fields):
            changes += 1
            if changes % _CHANGES_AT_ONCE == 0:
                await yield_to_loop()
    found = fold.activities()
    return replace(found, has_more=found.has_more or events.has_more)


async def _log_of_run(
    connection: Connection, record: RunRecord, limit: int
) -> Slice[LoggedMessage]:
    if record.input is None or record.input.range is None:
        return Slice((), has_more=False)
    last = record.output.range or record.input.range
    wanted = MessageFilter(
        from_seq=record.input.range.from_seq,
        to_seq=last.to_seq,
        visibility=Visibility.ALL,
        with_rolled_back=True,
    )
    return await _newest(connection, record.tenant, record.thread_id, wanted, limit)


async def _newest(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, wanted: MessageFilter, limit: int
) -> Slice[LoggedMessage]:
    """The newest messages in the order of the log. They are read in pages: other requests are served in
    between."""
    newest: list[LoggedMessage] = []
    has_more = True
    for _ in range(MAX_SNAPSHOT_PAGES):
        requested = PageRequest(
            order=Order.DESC,
            after=(newest[-1].seq,) if newest else None,
            limit=min(_MESSAGES_PER_PAGE, limit - len(newest)),
        )
        found = await messages.page(connection, tenant, thread_id, wanted, requested)
        newest += found
        has_more = found.has_more
        if not has_more or len(newest) == limit:
            break
    return Slice(tuple(reversed(newest)), has_more)
