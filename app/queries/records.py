"""Queries about runs, threads and messages. Foreign and missing are the same: not found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from app.context import ServiceContext
from app.domain.errors import NotFound
from app.domain.events.partial_message import PartialMessage, partial_message_of
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.json_values import JsonObject
from app.domain.principals import Principal, Scope
from app.domain.runs.rate_limits import partial_answer_of
from app.domain.runs.runs import RunFilter, Running, RunRecord, Waiting
from app.domain.slices import Slice
from app.domain.threads.messages import LoggedMessage, Visibility
from app.domain.threads.threads import Thread, ThreadSize
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.storage.children import child_runs
from app.storage.events import event_log
from app.storage.page_rows import MAX_PAGE_BYTES
from app.storage.postgres.database import Connection
from app.storage.runs import runs
from app.storage.threads import messages, sizes, threads
from app.storage.tickets import tickets

MAX_SNAPSHOT_MESSAGES = 10_000
SLICE_OF_LOG = 500


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with the tickets that keep it waiting, and those that keep the children it waits for."""

    run: RunRecord
    open_tickets: tuple[Ticket, ...] = ()
    tickets_below: tuple[Ticket, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """All that a client needs to draw a run without its history of events."""

    view: RunView
    messages: tuple[LoggedMessage, ...]
    open_parts: PartialMessage
    last_event_id: int


def run_not_found(run_id: RunId) -> NotFound:
    return NotFound("run_not_found", f"There is no run {run_id}.")


def thread_not_found(thread_id: ThreadId) -> NotFound:
    return NotFound("thread_not_found", f"There is no thread {thread_id}.")


async def found_thread(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> Thread:
    """The thread as it is stored; refuses when there is none."""
    found = await threads.get(connection, tenant, thread_id)
    if found is None:
        raise thread_not_found(thread_id)
    return found


async def locked_thread(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> Thread:
    """The thread, and its lock until the commit; refuses when there is none."""
    found = await threads.lock(connection, tenant, thread_id)
    if found is None:
        raise thread_not_found(thread_id)
    return found


async def read_run(ctx: ServiceContext, principal: Principal, run_id: RunId) -> RunView:
    principal.require(Scope.RUNS_READ)
    return await read_view(ctx, principal.tenant, run_id)


async def read_view(ctx: ServiceContext, tenant: Tenant, run_id: RunId) -> RunView:
    """For whoever has just changed the run, and may know what came of it."""
    async with ctx.database.reading() as connection:
        record = await runs.get(connection, tenant, run_id)
        if record is None:
            raise run_not_found(run_id)
        if not isinstance(record.state, Waiting):
            return RunView(record)
        unsettled = await tickets.unsettled_of_run(connection, tenant, run_id)
        return await _waiting(connection, record, unsettled)


async def _waiting(
    connection: Connection, record: RunRecord, unsettled: Sequence[Ticket]
) -> RunView:
    open_ones = _open_ones(unsettled)
    has_children = any(ticket.kind is TicketKind.CHILD for ticket in open_ones)
    if not has_children and record.open_tasks == 0:
        return RunView(record, open_ones)
    below = [
        child.id for child in await child_runs.descendants(connection, record.tenant, record.id)
    ]
    asked = await child_runs.open_tickets_of(connection, record.tenant, below)
    return RunView(record, open_ones, tuple(asked))


async def list_runs(
    ctx: ServiceContext,
    principal: Principal,
    wanted: RunFilter,
    *,
    before: tuple[datetime, RunId] | None,
    limit: int,
) -> Slice[RunView]:
    """Each with its own tickets; those of its children are shown by the run itself."""
    principal.require(Scope.RUNS_READ)
    tenant = principal.tenant
    async with ctx.database.reading() as connection:
        found = await runs.page(connection, tenant, wanted, before=before, limit=limit)
        waiting = [run.id for run in found if isinstance(run.state, Waiting)]
        sizes = await tickets.bytes_of_open(connection, tenant, waiting) if waiting else {}
        shown = _fitting(found, sizes)
        asking = [run.id for run in shown if run.id in sizes]
        asked = await tickets.open_of_runs(connection, tenant, asking) if asking else {}
    views = tuple(RunView(run, tuple(asked.get(run.id, ()))) for run in shown)
    return Slice(views, shown.has_more)


def _fitting(found: Slice[RunRecord], ticket_bytes: Mapping[RunId, int]) -> Slice[RunRecord]:
    """The first runs whose tickets fit into a page, at least one."""
    left = MAX_PAGE_BYTES
    for place, run in enumerate(found):
        left -= ticket_bytes.get(run.id, 0)
        if left < 0 and place > 0:
            return Slice(found[:place], has_more=True)
    return found


async def read_snapshot(ctx: ServiceContext, principal: Principal, run_id: RunId) -> RunSnapshot:
    """The run, its part of the log, and the event from which to go on following."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.transaction() as connection:
        await runs.see_one_instant(connection)
        record = await runs.get(connection, principal.tenant, run_id)
        if record is None:
            raise run_not_found(run_id)
        unsettled = await tickets.unsettled_of_run(connection, principal.tenant, run_id)
        head = await event_log.next_seq(connection, principal.tenant, record.thread_id) - 1
        open_parts = PartialMessage()
        if isinstance(record.state, Running):
            said = await event_log.of_open_step(
                connection, principal.tenant, record.thread_id, run_id, record.events_from
            )
            open_parts = partial_message_of(said)
        if (partial := partial_answer_of(record.run_state)) is not None and not record.is_done:
            open_parts = replace(open_parts, text=partial.text + open_parts.text)
        log = await _log_of(connection, record)
        seen = await _waiting(connection, record, unsettled)
    return RunSnapshot(seen, tuple(log), open_parts, head)


async def _log_of(connection: Connection, record: RunRecord) -> list[LoggedMessage]:
    """A run's part of the log. It may be long: other requests are served between its slices."""
    if record.input is None or record.input.range is None:
        return []
    last = record.output.range or record.input.range
    log: list[LoggedMessage] = []
    after, has_more = record.input.range.from_seq - 1, True
    while has_more and len(log) < MAX_SNAPSHOT_MESSAGES:
        found = await messages.page(
            connection,
            record.tenant,
            record.thread_id,
            after=after,
            before=last.to_seq + 1,
            descending=False,
            run_id=None,
            visibility=Visibility.ALL,
            limit=SLICE_OF_LOG,
            with_rolled_back=True,
        )
        log += found
        has_more = found.has_more
        after = log[-1].seq if log else after
    return log


async def read_thread(ctx: ServiceContext, principal: Principal, thread_id: ThreadId) -> Thread:
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        return await found_thread(connection, principal.tenant, thread_id)


async def list_threads(
    ctx: ServiceContext,
    principal: Principal,
    *,
    resource_id: str | None,
    parent_thread_id: ThreadId | None,
    metadata: JsonObject,
    before: tuple[datetime, ThreadId] | None,
    limit: int,
) -> Slice[Thread]:
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        return await threads.page(
            connection,
            principal.tenant,
            resource_id=resource_id,
            parent_thread_id=parent_thread_id,
            metadata=metadata,
            before=before,
            limit=limit,
        )


async def sizes_of_thread(
    ctx: ServiceContext, principal: Principal, thread_id: ThreadId
) -> ThreadSize:
    """What a thread takes, in every table."""
    await read_thread(ctx, principal, thread_id)
    async with ctx.database.reading() as connection:
        return await sizes.of_thread(connection, principal.tenant, thread_id)


async def list_messages(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    *,
    after: int | None,
    before: int | None,
    descending: bool,
    run_id: RunId | None,
    visibility: Visibility | None,
    limit: int,
    with_rolled_back: bool = False,
) -> Slice[LoggedMessage]:
    await read_thread(ctx, principal, thread_id)
    async with ctx.database.reading() as connection:
        return await messages.page(
            connection,
            principal.tenant,
            thread_id,
            after=after,
            before=before,
            descending=descending,
            run_id=run_id,
            visibility=visibility,
            limit=limit,
            with_rolled_back=with_rolled_back,
        )


def _open_ones(unsettled: Sequence[Ticket]) -> tuple[Ticket, ...]:
    return tuple(ticket for ticket in unsettled if ticket.status is TicketStatus.OPEN)
