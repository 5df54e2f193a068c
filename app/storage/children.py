"""Children as their parents' tickets and their own records tell of them."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import Uuid, and_, cast, func, or_, select

from app.domain.children import ticket_name_of_child, work_from_json
from app.domain.errands import AboutChild, ChildErrand
from app.domain.ids import RunId, Tenant
from app.domain.runs import RunRecord, RunStatus
from app.domain.tickets import Ticket, TicketKind, TicketStatus
from app.storage import deliveries
from app.storage.codec import run_of
from app.storage.database import Connection
from app.storage.tables import runs as run_table
from app.storage.tables import tickets as ticket_table
from app.storage.tickets import ticket_of, with_winner

_IS_OPEN_CHILD = and_(
    ticket_table.c.kind == TicketKind.CHILD.value, ticket_table.c.status == TicketStatus.OPEN.value
)


async def ticket_of_child(
    connection: Connection, tenant: Tenant, parent: RunId, child: RunId, *, hold: bool = False
) -> Ticket | None:
    """The open ticket that a child answers. Held, it can't be voided before this transaction ends."""
    statement = with_winner().where(
        ticket_table.c.tenant == tenant,
        ticket_table.c.run_id == parent,
        ticket_table.c.ticket_id == ticket_name_of_child(child),
        _IS_OPEN_CHILD,
    )
    if hold:
        statement = statement.with_for_update(read=True, of=ticket_table)
    row = (await connection.execute(statement)).mappings().one_or_none()
    return None if row is None else ticket_of(row)


async def start(connection: Connection, tenant: Tenant, ticket: Ticket) -> None:
    """Have the child that a new ticket is about started."""
    work = work_from_json(ticket.evidence or {})
    await _send(connection, ChildErrand.START, tenant, ticket.run_id, work.run_id)


async def cancel_all(connection: Connection, tenant: Tenant, parent: RunId) -> None:
    """Have all children cancelled that a run still waits for; the caller ends that run."""
    statement = select(ticket_table.c.evidence).where(
        ticket_table.c.tenant == tenant, ticket_table.c.run_id == parent, _IS_OPEN_CHILD
    )
    for evidence in (await connection.execute(statement)).scalars():
        child = work_from_json(evidence).run_id
        await _send(connection, ChildErrand.CANCEL, tenant, parent, child)


async def cancel(connection: Connection, tenant: Tenant, ticket: Ticket) -> None:
    """Have the child cancelled that nobody waits for any more."""
    work = work_from_json(ticket.evidence or {})
    await _send(connection, ChildErrand.CANCEL, tenant, ticket.run_id, work.run_id)


async def tell_parent(connection: Connection, tenant: Tenant, parent: RunId, child: RunId) -> None:
    """Have a parent told that its child has ended, or come to rest."""
    await _send(connection, ChildErrand.TELL_PARENT, tenant, parent, child)


async def forget(connection: Connection, tenant: Tenant, parent: RunId, child: RunId) -> None:
    """Have a child removed that isn't to be kept."""
    await _send(connection, ChildErrand.FORGET, tenant, parent, child)


async def _send(
    connection: Connection, kind: ChildErrand, tenant: Tenant, parent: RunId, child: RunId
) -> None:
    errand = AboutChild(kind=kind, tenant=tenant, parent_run_id=parent, child_run_id=child)
    await deliveries.enqueue_errand(connection, errand)


async def of_run(connection: Connection, tenant: Tenant, parent: RunId) -> list[RunRecord]:
    """The children of a run, the first one first."""
    return await _of_runs(connection, tenant, [parent])


async def _of_runs(
    connection: Connection, tenant: Tenant, parents: Sequence[RunId]
) -> list[RunRecord]:
    statement = (
        select(run_table)
        .where(run_table.c.tenant == tenant, run_table.c.parent_run_id.in_(parents))
        .order_by(run_table.c.created_at, run_table.c.id)
    )
    return [run_of(row) for row in (await connection.execute(statement)).mappings()]


async def open_tickets_of(
    connection: Connection, tenant: Tenant, run_ids: Sequence[RunId]
) -> list[Ticket]:
    """What people have to answer for any of these runs, oldest first."""
    statement = (
        with_winner()
        .where(
            ticket_table.c.tenant == tenant,
            ticket_table.c.run_id.in_(run_ids),
            ticket_table.c.kind != TicketKind.CHILD.value,
            ticket_table.c.status == TicketStatus.OPEN.value,
        )
        .order_by(ticket_table.c.created_at, ticket_table.c.id)
    )
    return [ticket_of(row) for row in (await connection.execute(statement)).mappings()]


async def below(connection: Connection, tenant: Tenant, run_id: RunId) -> list[RunRecord]:
    """The whole tree below a run, each after its parent."""
    found: list[RunRecord] = []
    parents = [run_id]
    while parents and (level := await _of_runs(connection, tenant, parents)):
        found += level
        parents = [child.id for child in level]
    return found


async def overdue(connection: Connection, *, grace: float, limit: int) -> list[AboutChild]:
    """Errands that should have been done `grace` ago and weren't; for the sweeper.

    A child that was never started, an end that its parent doesn't know, a child that goes on although
    nobody waits for it.
    """
    child, parent = run_table.alias("child"), run_table.alias("parent")
    long_ago = func.now() - timedelta(seconds=grace)
    done = RunStatus.DONE.value
    awaited = (
        select(ticket_table.c.tenant, ticket_table.c.run_id, ticket_table.c.evidence, child.c.id)
        .join_from(
            ticket_table,
            child,
            and_(
                child.c.tenant == ticket_table.c.tenant,
                child.c.id == cast(ticket_table.c.evidence["run_id"].astext, Uuid(as_uuid=False)),
            ),
            isouter=True,
        )
        .where(
            _IS_OPEN_CHILD,
            ticket_table.c.updated_at < long_ago,
            or_(child.c.id.is_(None), and_(child.c.status == done, child.c.updated_at < long_ago)),
        )
        .limit(limit)
    )
    errands = [
        AboutChild(
            kind=ChildErrand.START if row.id is None else ChildErrand.TELL_PARENT,
            tenant=Tenant(row.tenant),
            parent_run_id=RunId(row.run_id),
            child_run_id=work_from_json(row.evidence).run_id,
        )
        for row in await connection.execute(awaited)
    ]
    orphaned = (
        select(child.c.tenant, child.c.id, child.c.parent_run_id)
        .join_from(
            child,
            parent,
            and_(parent.c.tenant == child.c.tenant, parent.c.id == child.c.parent_run_id),
        )
        .where(
            child.c.parent_run_id.is_not(None),
            child.c.status != done,
            child.c.cancel_requested_at.is_(None),
            parent.c.status == done,
            parent.c.updated_at < long_ago,
        )
        .limit(limit)
    )
    errands += [
        AboutChild(
            kind=ChildErrand.CANCEL,
            tenant=Tenant(row.tenant),
            parent_run_id=RunId(row.parent_run_id),
            child_run_id=RunId(row.id),
        )
        for row in await connection.execute(orphaned)
    ]
    return errands
