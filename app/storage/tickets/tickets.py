"""Tickets: opened by a checkpoint, applied by another, voided with their run.

Each change of a ticket adds a notice to its tenant's feed in the same transaction.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    bindparam,
    cast,
    func,
    literal,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from app.domain.ids import (
    AgentId,
    CallId,
    RunId,
    Tenant,
    ThreadId,
    TicketKey,
    canonical_uuid,
)
from app.domain.signals import EventWait
from app.domain.tickets.decisions import Action
from app.domain.tickets.terms import OnExpiry, TicketTerms, approvers_from_json
from app.domain.tickets.tickets import (
    ANSWERED_BY_PROGRAMS,
    NoticeKind,
    Ticket,
    TicketKind,
    TicketStatus,
)
from app.domain.tools.tool_calls import Effect, ResumeMode
from app.storage.codec import Row
from app.storage.postgres.database import Connection
from app.storage.postgres.statements import prepared
from app.storage.tables import decisions, ticket_feed, tickets
from app.storage.tickets.decisions import DECISION_AS_JSON, decision_columns, decision_of

_winner = (
    (decisions.c.tenant == tickets.c.tenant)
    & (decisions.c.ticket == tickets.c.id)
    & (decisions.c.decision_id == tickets.c.decision_id)
)


def with_winner() -> Select[tuple[object, ...]]:
    return select(tickets, *decision_columns).join_from(tickets, decisions, _winner, isouter=True)


def ticket_of(row: Row) -> Ticket:
    return Ticket(
        id=TicketKey(row["id"]),
        run_id=RunId(row["run_id"]),
        thread_id=ThreadId(row["thread_id"]),
        agent_id=AgentId(row["agent_id"]),
        name=row["ticket_id"],
        kind=TicketKind(row["kind"]),
        call_id=None if row["call_id"] is None else CallId(row["call_id"]),
        step_index=row["step_index"],
        tool_name=row["tool_name"],
        arguments=row["arguments"],
        args_digest=row["args_digest"],
        resume_mode=ResumeMode(row["resume_mode"]),
        allowed_actions=frozenset(Action(action) for action in row["allowed_actions"]),
        response_schema=row["response_schema"],
        reason=row["reason"],
        message=row["message"],
        status=TicketStatus(row["status"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        decision=None if row["d_action"] is None else decision_of(row),
        applied_at=row["applied_at"],
        evidence=row["evidence"],
        terms=TicketTerms(
            on_expiry=OnExpiry(row["on_expiry"] or OnExpiry.REJECT),
            approvers=None if row["approvers"] is None else approvers_from_json(row["approvers"]),
        ),
        expires_at=row["expires_at"],
        carry=row["carry"],
        tool_effect=None if row["tool_effect"] is None else Effect(row["tool_effect"]),
        event=None
        if row["event_name"] is None
        else EventWait(name=row["event_name"], key=row["event_key"], number=row["event_number"]),
    )


TICKET_AS_JSON = f"(to_jsonb(k) || {DECISION_AS_JSON})"
"""SQL: the ticket `k` with its decision `d` as JSON."""
TICKETS_AND_DECISIONS = """tickets k LEFT JOIN decisions d
    ON d.tenant = k.tenant AND d.ticket = k.id AND d.decision_id = k.decision_id"""
"""SQL: each ticket `k` with its decision `d`."""
IS_UNSETTLED = "(k.status = 'open' OR k.status IN ('decided', 'expired') AND k.applied_at IS NULL)"
"""SQL: the ticket `k` is open, or its run hasn't applied it yet."""
_TIMES = ("created_at", "updated_at", "applied_at", "expires_at", "d_at")


def ticket_of_json(columns: dict[str, Any]) -> Ticket:
    """A ticket of `TICKET_AS_JSON`."""
    times = {name: columns[name] and datetime.fromisoformat(columns[name]) for name in _TIMES}
    return ticket_of({**columns, **times})


_OF_RUN = prepared(
    with_winner()
    .where(tickets.c.tenant == bindparam("tenant"), tickets.c.run_id == bindparam("run_id"))
    .order_by(tickets.c.created_at, tickets.c.id)
)


async def of_run(connection: Connection, tenant: Tenant, run_id: RunId) -> list[Ticket]:
    """All tickets of a run, oldest first."""
    rows = await connection.execute(_OF_RUN, {"tenant": tenant, "run_id": run_id})
    return [ticket_of(row) for row in rows]


async def runs_of(
    connection: Connection, tenant: Tenant, names: Sequence[str]
) -> dict[TicketKey, RunId]:
    """The runs of the tickets with these ids. What isn't an id of a ticket is left out."""
    ids = [id for name in names if (id := canonical_uuid(name)) is not None]
    statement = select(tickets.c.id, tickets.c.run_id).where(
        tickets.c.tenant == tenant, tickets.c.id.in_(ids)
    )
    rows = await connection.execute(statement)
    return {TicketKey(row.id): RunId(row.run_id) for row in rows}


async def unsettled_of_run(connection: Connection, tenant: Tenant, run_id: RunId) -> list[Ticket]:
    """Open tickets, and decided or expired ones that the run hasn't applied yet."""
    return [ticket for ticket in await of_run(connection, tenant, run_id) if ticket.is_unsettled]


async def open_of_runs(
    connection: Connection, tenant: Tenant, run_ids: Sequence[RunId]
) -> dict[RunId, list[Ticket]]:
    """The open tickets by run, oldest first. Runs without any are left out."""
    statement = (
        with_winner()
        .where(
            tickets.c.tenant == tenant,
            tickets.c.run_id.in_(run_ids),
            tickets.c.status == TicketStatus.OPEN.value,
        )
        .order_by(tickets.c.created_at, tickets.c.id)
    )
    found: dict[RunId, list[Ticket]] = {}
    for row in await connection.execute(statement):
        ticket = ticket_of(row)
        found.setdefault(ticket.run_id, []).append(ticket)
    return found


async def bytes_of_open(
    connection: Connection, tenant: Tenant, run_ids: Sequence[RunId]
) -> dict[RunId, int]:
    """The bytes of the open tickets by run, as text. Runs without any are left out."""
    whole_row = cast(literal_column("tickets"), Text)
    statement = (
        select(tickets.c.run_id, func.sum(func.octet_length(whole_row)).label("bytes"))
        .where(
            tickets.c.tenant == tenant,
            tickets.c.run_id.in_(run_ids),
            tickets.c.status == TicketStatus.OPEN.value,
        )
        .group_by(tickets.c.run_id)
    )
    rows = await connection.execute(statement)
    return {RunId(row.run_id): row.bytes for row in rows}


async def get(connection: Connection, tenant: Tenant, key: TicketKey) -> Ticket | None:
    statement = with_winner().where(tickets.c.tenant == tenant, tickets.c.id == key)
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else ticket_of(row)


async def void_open(connection: Connection, tenant: Tenant, run_id: RunId) -> None:
    """Void all open tickets of a run that is done."""
    await _void(connection, tickets.c.tenant == tenant, tickets.c.run_id == run_id)


async def void(
    connection: Connection, tenant: Tenant, run_id: RunId, keys: Sequence[TicketKey]
) -> None:
    """Void some open tickets of a run."""
    if keys:
        of_run = (tickets.c.tenant == tenant, tickets.c.run_id == run_id)
        await _void(connection, *of_run, tickets.c.id.in_(keys))


async def _void(connection: Connection, *which: ColumnElement[bool]) -> None:
    void = (
        update(tickets)
        .where(*which, tickets.c.status == "open")
        .values(status=TicketStatus.VOID.value, updated_at=func.now())
        .returning(tickets.c.tenant, tickets.c.id, tickets.c.kind)
        .cte("void")
    )
    await connection.execute(
        insert(ticket_feed).from_select(
            ["tenant", "ticket", "kind"],
            select(void.c.tenant, void.c.id, literal(NoticeKind.VOID.value)).where(
                void.c.kind.not_in(ANSWERED_BY_PROGRAMS)
            ),
        )
    )
