"""Queries about runs, threads and messages. Rows of another tenant are not found, like missing ones."""

from collections.abc import Mapping

from msgspec import Struct

from app.context import ServiceContext
from app.domain.errors import NotFound
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunFilter, RunRecord, Waiting
from app.domain.slices import PageRequest, Slice
from app.domain.structs import replace
from app.domain.threads.messages import LoggedMessage, MessageFilter
from app.domain.threads.threads import (
    ListedThread,
    MessagePreview,
    Thread,
    ThreadFilter,
    ThreadSort,
)
from app.domain.tickets.tickets import Ticket, decided_by_people
from app.domain.usage.totals import UsageTotal
from app.storage.page_rows import MAX_PAGE_BYTES
from app.storage.postgres.database import Connection
from app.storage.runs import listing as run_list
from app.storage.runs import runs
from app.storage.runs.runs import RunStream
from app.storage.threads import listing as thread_list
from app.storage.threads import messages, threads
from app.storage.tickets import child_tickets, listing, tickets


class RunView(Struct, frozen=True):
    """A run with its open tickets, and those of its descendants."""

    run: RunRecord
    open_tickets: tuple[Ticket, ...] = ()
    tickets_below: tuple[Ticket, ...] = ()
    has_more_tickets: bool = False
    """Whether more tickets are open than a page has bytes for."""
    is_asked_below: bool = False
    """Whether tickets of descendants are open, also if they aren't shown."""
    usage: tuple[UsageTotal, ...] | None = None
    """The run's usage by model, if it was read."""

    @property
    def needs_decision(self) -> bool:
        """Whether the run, if it waits, waits until a person acts."""
        asks = bool(decided_by_people(self.open_tickets)) or bool(self.tickets_below)
        return asks or self.is_asked_below or self.run.pause is not None


def run_not_found(run_id: RunId) -> NotFound:
    return NotFound("run_not_found", f"There is no run {run_id}.")


def thread_not_found(thread_id: ThreadId, key: str | None = None) -> NotFound:
    name = thread_id if key is None else f"with the key {key!r}"
    return NotFound("thread_not_found", f"There is no thread {name}.")


async def found_thread(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> Thread:
    """Read a thread; raises `thread_not_found`."""
    found = await threads.get(connection, tenant, thread_id)
    if found is None:
        raise thread_not_found(thread_id)
    return found


async def locked_thread(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> Thread:
    """Read a thread and lock its row until commit; raises `thread_not_found`."""
    found = await threads.lock(connection, tenant, thread_id)
    if found is None:
        raise thread_not_found(thread_id)
    return found


async def found_run(connection: Connection, tenant: Tenant, run_id: RunId) -> RunRecord:
    """Read a run; raises `run_not_found`."""
    found = await runs.get(connection, tenant, run_id)
    if found is None:
        raise run_not_found(run_id)
    return found


async def locked_run(connection: Connection, tenant: Tenant, run_id: RunId) -> RunRecord:
    """Read a run and lock its row until commit; raises `run_not_found`."""
    found = await runs.lock(connection, tenant, run_id)
    if found is None:
        raise run_not_found(run_id)
    return found


async def read_run(ctx: ServiceContext, principal: Principal, run_id: RunId) -> RunView:
    principal.require(Scope.RUNS_READ)
    return await read_view(ctx, principal.tenant, run_id)


async def read_run_stream(ctx: ServiceContext, principal: Principal, run_id: RunId) -> RunStream:
    """Where the events of a run are; raises `run_not_found`."""
    principal.require(Scope.RUNS_READ)
    found = await runs.stream_of_run(ctx.database.pool, principal.tenant, run_id)
    if found is None:
        raise run_not_found(run_id)
    return found


async def read_view(ctx: ServiceContext, tenant: Tenant, run_id: RunId) -> RunView:
    """Read a run without a scope check, for a command's caller that has just changed it."""
    async with ctx.database.reading_by_key() as connection:
        record = await found_run(connection, tenant, run_id)
        if not isinstance(record.state, Waiting):
            return RunView(record)
        return await with_open_tickets(connection, record)


async def with_open_tickets(connection: Connection, record: RunRecord) -> RunView:
    """The view of a waiting run."""
    own = await listing.open_of(connection, record.tenant, [record.id])
    below = await listing.open_below(connection, record.tenant, record.id)
    return RunView(record, own.items, below.items, own.has_more or below.has_more)


async def list_runs(
    ctx: ServiceContext,
    principal: Principal,
    wanted: RunFilter,
    requested: PageRequest,
) -> Slice[RunView]:
    """A page of runs, each with its own open tickets; those of descendants only `read_run` shows."""
    principal.require(Scope.RUNS_READ)
    tenant = principal.tenant
    async with ctx.database.reading() as connection:
        found = await run_list.page(connection, tenant, wanted, requested)
        waiting = [run.id for run in found if isinstance(run.state, Waiting)]
        sizes = await tickets.bytes_of_open(connection, tenant, waiting) if waiting else {}
        shown = _first_page(found, sizes)
        with_tickets = [run.id for run in shown if run.id in sizes]
        if any(sizes[run_id] > MAX_PAGE_BYTES for run_id in with_tickets):
            # Its tickets fill the page, so this run is the only one.
            own = await listing.open_of(connection, tenant, with_tickets)
            below = await child_tickets.with_open_below(connection, tenant, with_tickets)
            view = RunView(
                shown[0],
                own.items,
                has_more_tickets=own.has_more,
                is_asked_below=shown[0].id in below,
            )
            return Slice((view,), shown.has_more)
        open_of = (
            await tickets.open_of_runs(connection, tenant, with_tickets) if with_tickets else {}
        )
        below = await child_tickets.with_open_below(connection, tenant, waiting)
    views = tuple(
        RunView(run, tuple(open_of.get(run.id, ())), is_asked_below=run.id in below)
        for run in shown
    )
    return Slice(views, shown.has_more)


def _first_page(found: Slice[RunRecord], ticket_bytes: Mapping[RunId, int]) -> Slice[RunRecord]:
    """The first runs whose tickets fit into a page, at least one."""
    left = MAX_PAGE_BYTES
    for place, run in enumerate(found):
        left -= ticket_bytes.get(run.id, 0)
        if left < 0 and place > 0:
            return Slice(found[:place], has_more=True)
    return found


async def read_thread(ctx: ServiceContext, principal: Principal, thread_id: ThreadId) -> Thread:
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading_by_key() as connection:
        return await found_thread(connection, principal.tenant, thread_id)


async def list_threads(
    ctx: ServiceContext,
    principal: Principal,
    wanted: ThreadFilter,
    requested: PageRequest,
    sort: ThreadSort = ThreadSort.CREATED,
    *,
    last_messages: bool = False,
    first_messages: bool = False,
) -> Slice[ListedThread]:
    principal.require(Scope.RUNS_READ)
    tenant = principal.tenant
    last: Mapping[ThreadId, MessagePreview] = {}
    first: Mapping[ThreadId, MessagePreview] = {}
    async with ctx.database.reading() as connection:
        found = await thread_list.page(connection, tenant, wanted, sort, requested)
        ids = [each.thread.id for each in found]
        if last_messages:
            last = await thread_list.last_messages(connection, tenant, ids)
        if first_messages:
            first = await thread_list.first_messages(connection, tenant, ids)
    shown = (
        replace(
            each, last_message=last.get(each.thread.id), first_message=first.get(each.thread.id)
        )
        for each in found
    )
    return Slice(tuple(shown), found.has_more)


async def list_messages(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    wanted: MessageFilter,
    requested: PageRequest,
) -> Slice[LoggedMessage]:
    await read_thread(ctx, principal, thread_id)
    async with ctx.database.reading() as connection:
        return await messages.page(connection, principal.tenant, thread_id, wanted, requested)
