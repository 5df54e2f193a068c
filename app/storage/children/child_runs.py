"""Child runs: what their parent waits for, and the follow-ups about them."""

from collections.abc import Sequence
from typing import TypeAlias

import structlog
from sqlalchemy import and_, select, text

from app.domain.children.background_tasks import Task
from app.domain.children.child_runs import ChildWork, ticket_name_of_child, work_from_json
from app.domain.children.followups import ChildFollowup, FollowupKind
from app.domain.ids import RunId, Tenant
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.tickets.tickets import ANSWERED_BY_PROGRAMS, Ticket, TicketKind, TicketStatus
from app.storage.children import child_tasks
from app.storage.codec import Row, run_of
from app.storage.postgres.database import Connection
from app.storage.queue import deliveries
from app.storage.tables import runs as run_table
from app.storage.tables import tickets as ticket_table
from app.storage.tickets.tickets import ticket_of, with_winner

log = structlog.get_logger(__name__)

IS_OPEN_CHILD = and_(
    ticket_table.c.kind == TicketKind.CHILD.value, ticket_table.c.status == TicketStatus.OPEN.value
)


Waiter: TypeAlias = Ticket | Task
"""The parent's ticket or background task that a child run answers."""


async def waiter_of(
    connection: Connection, tenant: Tenant, parent: RunId, child: RunId, *, hold: bool = False
) -> Waiter | None:
    """The ticket or task that waits for this child. With `hold`, locks that row until commit."""
    statement = with_winner().where(
        ticket_table.c.tenant == tenant,
        ticket_table.c.run_id == parent,
        ticket_table.c.ticket_id == ticket_name_of_child(child),
        IS_OPEN_CHILD,
    )
    if hold:
        statement = statement.with_for_update(read=True, of=ticket_table)
    row = (await connection.execute(statement)).one_or_none()
    if row is not None:
        return ticket_of(row)
    return await child_tasks.of_child(connection, tenant, child, hold=hold)


async def is_running(connection: Connection, tenant: Tenant, child: RunId) -> bool:
    """Whether a child exists and isn't done. Reads only its status: other columns may be unreadable."""
    statement = select(run_table.c.status).where(
        run_table.c.tenant == tenant, run_table.c.id == child
    )
    status = await connection.scalar(statement)
    return status is not None and status != RunStatus.DONE.value


async def start(connection: Connection, tenant: Tenant, parent: RunId, work: ChildWork) -> None:
    """Enqueue the start of the child run of a new ticket or task."""
    await _send(connection, FollowupKind.START, tenant, parent, work.run_id)


async def cancel_all(connection: Connection, tenant: Tenant, parent: RunId) -> None:
    """Enqueue the cancellation of each child that a run has an open ticket for. The caller ends the run."""
    statement = select(ticket_table.c.evidence).where(
        ticket_table.c.tenant == tenant, ticket_table.c.run_id == parent, IS_OPEN_CHILD
    )
    for evidence in (await connection.execute(statement)).scalars():
        await cancel(connection, tenant, parent, work_from_json(evidence).run_id)


async def cancel_of(connection: Connection, tenant: Tenant, ticket: Ticket) -> None:
    """Enqueue the cancellation of the child of a ticket that was withdrawn."""
    work = work_from_json(ticket.evidence or {})
    await cancel(connection, tenant, ticket.run_id, work.run_id)


async def cancel(connection: Connection, tenant: Tenant, parent: RunId, child: RunId) -> None:
    """Enqueue the cancellation of a child."""
    await _send(connection, FollowupKind.CANCEL, tenant, parent, child)


async def report_to_parent(
    connection: Connection, tenant: Tenant, parent: RunId, child: RunId
) -> None:
    """Enqueue a report to the parent that its child has ended or is suspended."""
    await _send(connection, FollowupKind.REPORT_TO_PARENT, tenant, parent, child)


async def show_tickets(connection: Connection, tenant: Tenant, parent: RunId, child: RunId) -> None:
    """Enqueue an update of the parent's stream: tickets of its child, or below it, were opened or closed."""
    await _send(connection, FollowupKind.SHOW_TICKETS, tenant, parent, child)


async def forward_messages(
    connection: Connection, tenant: Tenant, parent: RunId, child: RunId
) -> None:
    """Enqueue forwarding of the messages that a parent has sent to its child's task."""
    await _send(connection, FollowupKind.FORWARD_MESSAGES, tenant, parent, child)


async def delete(connection: Connection, tenant: Tenant, parent: RunId, child: RunId) -> None:
    """Enqueue the deletion of a child that isn't to be kept."""
    await _send(connection, FollowupKind.DELETE, tenant, parent, child)


async def _send(
    connection: Connection, kind: FollowupKind, tenant: Tenant, parent: RunId, child: RunId
) -> None:
    followup = ChildFollowup(kind=kind, tenant=tenant, parent_run_id=parent, child_run_id=child)
    await deliveries.enqueue_followup(connection, followup)


async def of_run(connection: Connection, tenant: Tenant, parent: RunId) -> list[RunRecord]:
    """The children of a run, oldest first."""
    return [run_of(row) for row in await _rows_of(connection, tenant, [parent])]


async def _rows_of(
    connection: Connection, tenant: Tenant, parents: Sequence[RunId]
) -> Sequence[Row]:
    statement = (
        select(run_table)
        .where(run_table.c.tenant == tenant, run_table.c.parent_run_id.in_(parents))
        .order_by(run_table.c.created_at, run_table.c.id)
    )
    return (await connection.execute(statement)).all()


async def open_tickets_of(
    connection: Connection, tenant: Tenant, run_ids: Sequence[RunId]
) -> list[Ticket]:
    """The open tickets of these runs that need a human decision, oldest first."""
    statement = (
        with_winner()
        .where(
            ticket_table.c.tenant == tenant,
            ticket_table.c.run_id.in_(run_ids),
            ticket_table.c.kind.not_in(ANSWERED_BY_PROGRAMS),
            ticket_table.c.status == TicketStatus.OPEN.value,
        )
        .order_by(ticket_table.c.created_at, ticket_table.c.id)
    )
    return [ticket_of(row) for row in (await connection.execute(statement))]


_IS_BELOW = text("""
WITH RECURSIVE above AS (
    SELECT r.parent_run_id FROM runs r WHERE r.tenant = :tenant AND r.id = CAST(:run AS uuid)
    UNION ALL
    SELECT r.parent_run_id FROM above a JOIN runs r ON r.tenant = :tenant AND r.id = a.parent_run_id
)
SELECT EXISTS (SELECT FROM above WHERE parent_run_id = CAST(:ancestor AS uuid))
""")


async def is_below(connection: Connection, tenant: Tenant, run_id: RunId, ancestor: RunId) -> bool:
    """Whether a run is a child of another one, or a child of one of its children."""
    found = await connection.execute(
        _IS_BELOW, {"tenant": tenant, "run": run_id, "ancestor": ancestor}
    )
    return bool(found.scalar_one())


async def descendants(connection: Connection, tenant: Tenant, run_id: RunId) -> list[RunRecord]:
    """All runs below a run, each after its parent. Unreadable rows are left out and logged."""
    found: list[RunRecord] = []
    parents = [run_id]
    while parents and (level := await _rows_of(connection, tenant, parents)):
        found += [record for row in level if (record := _readable(row)) is not None]
        parents = [RunId(row["id"]) for row in level]
    return found


def _readable(row: Row) -> RunRecord | None:
    try:
        return run_of(row)
    except (KeyError, TypeError, ValueError):
        log.exception("run_unreadable", run_id=row["id"], tenant=row["tenant"])
        return None
