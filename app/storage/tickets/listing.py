"""Lists of tickets: the inbox, and decided tickets about similar calls."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    DateTime,
    Text,
    and_,
    cast,
    func,
    literal,
    literal_column,
    or_,
    select,
)

from app.domain.ids import RunId, Tenant, TicketKey
from app.domain.principals import Principal, Scope
from app.domain.slices import BoundedCount, PageRequest, Slice
from app.domain.tickets.decisions import DecisionEffect
from app.domain.tickets.listed import ListedTicket
from app.domain.tickets.tickets import (
    ANSWERED_BY_PROGRAMS,
    Ticket,
    TicketFilter,
    TicketSort,
    TicketStatus,
)
from app.storage.page_rows import BY_CREATION, MAX_PAGE_BYTES, in_period, page_of, page_rows
from app.storage.postgres.database import Connection
from app.storage.runs.listing import in_tree
from app.storage.tables import NEVER_EXPIRES, decisions, runs, tickets
from app.storage.tickets.child_tickets import is_shown_open
from app.storage.tickets.listed import listed_ticket_of, listed_tickets
from app.storage.tickets.tickets import ticket_of, with_winner

MAX_OPEN_TICKETS = 10_000
"""More than fit into a page, so that only their bytes limit it."""
MAX_COUNTED = 1_000
"""Up to this number, tickets are counted."""
_BY_EXPIRY = ("sorted_expiry", "id")
_sorted_expiry: ColumnElement[datetime] = literal_column(
    f"coalesce(tickets.expires_at, {NEVER_EXPIRES})", DateTime(timezone=True)
)


async def page(
    connection: Connection,
    tenant: Tenant,
    wanted: TicketFilter,
    sort: TicketSort,
    requested: PageRequest,
) -> Slice[ListedTicket]:
    """The inbox: tickets of a tenant by creation, or by expiry."""
    statement = listed_tickets().where(tickets.c.tenant == tenant, *conditions(wanted))
    if sort is TicketSort.CREATED:
        return await page_of(connection, statement, listed_ticket_of, requested, by=BY_CREATION)
    statement = statement.add_columns(_sorted_expiry.label("sorted_expiry"))
    return await page_of(connection, statement, listed_ticket_of, requested, by=_BY_EXPIRY)


async def get(connection: Connection, tenant: Tenant, key: TicketKey) -> ListedTicket | None:
    """One ticket, as the list shows it."""
    statement = listed_tickets().where(tickets.c.tenant == tenant, tickets.c.id == key)
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else listed_ticket_of(row)


async def count(
    connection: Connection, tenant: Tenant, wanted: TicketFilter, period: PageRequest
) -> BoundedCount:
    """The number of tickets of a period, counted up to `MAX_COUNTED`."""
    fitting = select(tickets.c.created_at).where(tickets.c.tenant == tenant, *conditions(wanted))
    found = in_period(fitting, period).limit(MAX_COUNTED + 1).subquery()
    total = await connection.scalar(select(func.count()).select_from(found)) or 0
    return BoundedCount(min(total, MAX_COUNTED), is_exact=total <= MAX_COUNTED)


async def open_of(
    connection: Connection, tenant: Tenant, run_ids: Sequence[RunId]
) -> Slice[Ticket]:
    """The open tickets of these runs, oldest first, as many as fit into a page by their bytes."""
    return await _as_fit(
        connection,
        tickets.c.tenant == tenant,
        tickets.c.run_id.in_(run_ids),
        tickets.c.status == TicketStatus.OPEN.value,
    )


async def count_open_of(
    connection: Connection, tenant: Tenant, run_ids: Sequence[RunId]
) -> dict[RunId, int]:
    """The number of open tickets of these runs that a person decides. Runs without any are left out."""
    statement = (
        select(tickets.c.run_id, func.count().label("tickets"))
        .where(
            tickets.c.tenant == tenant,
            tickets.c.run_id.in_(run_ids),
            tickets.c.status == TicketStatus.OPEN.value,
            tickets.c.kind.not_in(sorted(ANSWERED_BY_PROGRAMS)),
        )
        .group_by(tickets.c.run_id)
    )
    rows = await connection.execute(statement)
    return {RunId(str(row.run_id)): row.tickets for row in rows}


async def open_below(connection: Connection, tenant: Tenant, run_id: RunId) -> Slice[Ticket]:
    """The same of the open tickets below a run that its stream shows."""
    return await _as_fit(connection, is_shown_open(tenant, run_id))


async def _as_fit(connection: Connection, *wanted: ColumnElement[bool]) -> Slice[Ticket]:
    """Nearly always all tickets fit. Measuring them first is faster than `page_rows` for each run."""
    row_bytes = func.octet_length(cast(literal_column("tickets"), Text))
    total = await connection.scalar(select(func.sum(row_bytes)).select_from(tickets).where(*wanted))
    if total is None:
        return Slice((), has_more=False)
    statement = with_winner().where(*wanted)
    if total <= MAX_PAGE_BYTES:
        rows = await connection.execute(statement.order_by(tickets.c.created_at, tickets.c.id))
        return Slice(tuple(ticket_of(row) for row in rows), has_more=False)
    return await page_rows(
        connection,
        statement,
        ticket_of,
        by=("created_at", "id"),
        descending=False,
        limit=MAX_OPEN_TICKETS,
    )


def conditions(wanted: TicketFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = [
        tickets.c.kind.not_in(ANSWERED_BY_PROGRAMS)
        if wanted.kind is None
        else tickets.c.kind == wanted.kind.value
    ]
    if wanted.status is not None:
        found.append(tickets.c.status == wanted.status.value)
    if wanted.status is TicketStatus.OPEN or wanted.decidable_by is not None:
        # Lets Postgres use the partial index `tickets_open_by_expiry`.
        found.append(literal_column("tickets.status = 'open'"))
    if wanted.agent_id is not None:
        found.append(tickets.c.agent_id == wanted.agent_id)
    if wanted.tool_name is not None:
        found.append(tickets.c.tool_name == wanted.tool_name)
    if wanted.run_id is not None:
        found.append(tickets.c.run_id == wanted.run_id)
    if wanted.thread_id is not None:
        # The runs of a thread are few, and their tickets have an index.
        of_thread = select(runs.c.id).where(
            runs.c.tenant == tickets.c.tenant, runs.c.thread_id == wanted.thread_id
        )
        found.append(tickets.c.run_id.in_(of_thread))
    if wanted.root_run_id is not None:
        in_its_tree = select(runs.c.id).where(
            runs.c.tenant == tickets.c.tenant, in_tree(wanted.root_run_id)
        )
        found.append(tickets.c.run_id.in_(in_its_tree))
    if wanted.expires_before is not None:
        found.append(tickets.c.expires_at < wanted.expires_before)
    if wanted.decidable_by is not None:
        found.append(_decidable_by(wanted.decidable_by))
    return found


def _decidable_by(principal: Principal) -> ColumnElement[bool]:
    """The same rule as `ApproverRule.broken_by`, in SQL."""
    rule = tickets.c.approvers
    has_scope = (
        literal(True)
        if principal.is_admin
        else or_(~rule.has_key("scope"), rule["scope"].astext.in_(sorted(principal.scopes)))
    )
    started = select(literal(1)).where(
        runs.c.tenant == tickets.c.tenant,
        runs.c.id == tickets.c.run_id,
        runs.c.started_by == principal.subject,
    )
    vote = decisions.alias("vote")
    voted = select(literal(1)).where(
        vote.c.tenant == tickets.c.tenant,
        vote.c.ticket == tickets.c.id,
        vote.c.subject == principal.subject,
        vote.c.effect == DecisionEffect.VOTED.value,
    )
    isnt_starter = or_(~rule.has_key("not_starter"), ~started.exists())
    return and_(
        literal(principal.may(Scope.DECISIONS_WRITE)),
        tickets.c.status == TicketStatus.OPEN.value,
        or_(rule.is_(None), and_(has_scope, isnt_starter, ~voted.exists())),
    )


async def decided_for_same_tool(
    connection: Connection, tenant: Tenant, like: Ticket, limit: int
) -> Slice[Ticket]:
    """Decided or expired tickets about the same tool of the same agent, newest first."""
    statement = with_winner().where(
        tickets.c.tenant == tenant,
        tickets.c.agent_id == like.agent_id,
        tickets.c.tool_name == like.tool_name,
        tickets.c.id != like.id,
        tickets.c.status.in_((TicketStatus.DECIDED.value, TicketStatus.EXPIRED.value)),
    )
    return await page_of(connection, statement, ticket_of, PageRequest(limit=limit))
