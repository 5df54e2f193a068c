"""Children as their parents' tickets and tasks and their own records tell of them."""

from collections.abc import Sequence
from typing import TypeAlias

import structlog
from sqlalchemy import and_, select

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
"""What stands for a child on its parent's side: a question that it answers, or the task that it is."""


async def waiter_of(
    connection: Connection, tenant: Tenant, parent: RunId, child: RunId, *, hold: bool = False
) -> Waiter | None:
    """What a child's end is awaited by. Held, nobody ends the wait before this transaction ends."""
    statement = with_winner().where(
        ticket_table.c.tenant == tenant,
        ticket_table.c.run_id == parent,
        ticket_table.c.ticket_id == ticket_name_of_child(child),
        IS_OPEN_CHILD,
    )
    if hold:
        statement = statement.with_for_update(read=True, of=ticket_table)
    row = (await connection.execute(statement)).mappings().one_or_none()
    if row is not None:
        return ticket_of(row)
    return await child_tasks.of_child(connection, tenant, child, hold=hold)


async def is_running(connection: Connection, tenant: Tenant, child: RunId) -> bool:
    """Whether a child is there and hasn't ended, whatever else is in its row."""
    statement = select(run_table.c.status).where(
        run_table.c.tenant == tenant, run_table.c.id == child
    )
    status = await connection.scalar(statement)
    return status is not None and status != RunStatus.DONE.value


async def start(connection: Connection, tenant: Tenant, parent: RunId, work: ChildWork) -> None:
    """Have the child started that a new ticket or task is about."""
    await _send(connection, FollowupKind.START, tenant, parent, work.run_id)


async def cancel_all(connection: Connection, tenant: Tenant, parent: RunId) -> None:
    """Have all children cancelled that a run still waits for; the caller ends that run."""
    statement = select(ticket_table.c.evidence).where(
        ticket_table.c.tenant == tenant, ticket_table.c.run_id == parent, IS_OPEN_CHILD
    )
    for evidence in (await connection.execute(statement)).scalars():
        await cancel(connection, tenant, parent, work_from_json(evidence).run_id)


async def cancel_of(connection: Connection, tenant: Tenant, ticket: Ticket) -> None:
    """Have the child cancelled whose ticket was taken back."""
    work = work_from_json(ticket.evidence or {})
    await cancel(connection, tenant, ticket.run_id, work.run_id)


async def cancel(connection: Connection, tenant: Tenant, parent: RunId, child: RunId) -> None:
    """Have a child cancelled that nobody waits for any more."""
    await _send(connection, FollowupKind.CANCEL, tenant, parent, child)


async def report_to_parent(
    connection: Connection, tenant: Tenant, parent: RunId, child: RunId
) -> None:
    """Have a parent told that its child has ended, or come to rest."""
    await _send(connection, FollowupKind.REPORT_TO_PARENT, tenant, parent, child)


async def forward_messages(
    connection: Connection, tenant: Tenant, parent: RunId, child: RunId
) -> None:
    """Have messages put before a child that its parent has sent to the task that it is."""
    await _send(connection, FollowupKind.FORWARD_MESSAGES, tenant, parent, child)


async def forget(connection: Connection, tenant: Tenant, parent: RunId, child: RunId) -> None:
    """Have a child removed that isn't to be kept."""
    await _send(connection, FollowupKind.FORGET, tenant, parent, child)


async def _send(
    connection: Connection, kind: FollowupKind, tenant: Tenant, parent: RunId, child: RunId
) -> None:
    followup = ChildFollowup(kind=kind, tenant=tenant, parent_run_id=parent, child_run_id=child)
    await deliveries.enqueue_followup(connection, followup)


async def of_run(connection: Connection, tenant: Tenant, parent: RunId) -> list[RunRecord]:
    """The children of a run, the first one first."""
    return [run_of(row) for row in await _rows_of(connection, tenant, [parent])]


async def _rows_of(
    connection: Connection, tenant: Tenant, parents: Sequence[RunId]
) -> Sequence[Row]:
    statement = (
        select(run_table)
        .where(run_table.c.tenant == tenant, run_table.c.parent_run_id.in_(parents))
        .order_by(run_table.c.created_at, run_table.c.id)
    )
    return (await connection.execute(statement)).mappings().all()


async def open_tickets_of(
    connection: Connection, tenant: Tenant, run_ids: Sequence[RunId]
) -> list[Ticket]:
    """What people have to answer for any of these runs, oldest first."""
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
    return [ticket_of(row) for row in (await connection.execute(statement)).mappings()]


async def descendants(connection: Connection, tenant: Tenant, run_id: RunId) -> list[RunRecord]:
    """The whole tree below a run, each after its parent; without what can't be read, over which nobody
    above it shall become unreadable too."""
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
