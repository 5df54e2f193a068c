"""Tickets: opened by a checkpoint, applied by another, voided with their run.

Whatever becomes of a ticket is noted in the feed of its tenant's inbox in the same transaction.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Interval,
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

from app.domain.ids import AgentId, CallId, RunId, Tenant, ThreadId, TicketKey
from app.domain.json_values import storable
from app.domain.signals import EventWait
from app.domain.tickets.decisions import Action
from app.domain.tickets.terms import OnExpiry, TicketTerms, approvers_from_json, approvers_to_json
from app.domain.tickets.tickets import (
    ANSWERED_BY_PROGRAMS,
    NoticeKind,
    Ticket,
    TicketKind,
    TicketStatus,
)
from app.domain.tools.tool_calls import ResumeMode
from app.storage.codec import Row
from app.storage.postgres.database import Connection
from app.storage.tables import decisions, ticket_feed, tickets
from app.storage.tickets.decisions import decision_columns, decision_of
from app.storage.tickets.notices import notice

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
        event=None
        if row["event_name"] is None
        else EventWait(name=row["event_name"], key=row["event_key"], number=row["event_number"]),
    )


async def open_all(connection: Connection, tenant: Tenant, opened: Sequence[Ticket]) -> None:
    """New questions; two open ones of one name in a run are refused by the index.

    When they expire is counted by the database's clock: those of the replicas may jump.
    """
    if not opened:
        return
    await connection.execute(
        insert(tickets).values(
            expires_at=func.now() + bindparam("lasts", type_=Interval()),
            remind_at=func.now() + bindparam("half", type_=Interval()),
        ),
        [
            {
                "tenant": tenant,
                "id": ticket.id,
                "run_id": ticket.run_id,
                "thread_id": ticket.thread_id,
                "agent_id": ticket.agent_id,
                "ticket_id": storable(ticket.name),
                "kind": ticket.kind.value,
                "call_id": ticket.call_id,
                "step_index": ticket.step_index,
                "tool_name": ticket.tool_name,
                "arguments": storable(ticket.arguments),
                "args_digest": ticket.args_digest,
                "resume_mode": ticket.resume_mode.value,
                "allowed_actions": sorted(ticket.allowed_actions),
                "response_schema": storable(ticket.response_schema),
                "reason": storable(ticket.reason),
                "message": storable(ticket.message),
                "evidence": storable(ticket.evidence),
                "status": ticket.status.value,
                **_event_columns(ticket.event),
                **_terms_columns(ticket.terms, reminds=ticket.kind not in ANSWERED_BY_PROGRAMS),
                "created_at": ticket.created_at,
                "updated_at": ticket.updated_at,
            }
            for ticket in opened
        ],
    )
    await notice(connection, tenant, [ticket.id for ticket in opened], NoticeKind.OPENED)


def _event_columns(event: EventWait | None) -> dict[str, Any]:
    return {
        "event_name": None if event is None else event.name,
        "event_key": None if event is None else event.key,
        "event_number": None if event is None else event.number,
    }


def _terms_columns(terms: TicketTerms, *, reminds: bool) -> dict[str, Any]:
    lasts = terms.expires_in
    return {
        "approvers": None if terms.approvers is None else approvers_to_json(terms.approvers),
        "on_expiry": None if lasts is None else terms.on_expiry.value,
        "lasts": None if lasts is None else timedelta(seconds=lasts),
        "half": None if lasts is None or not reminds else timedelta(seconds=lasts / 2),
    }


async def of_run(connection: Connection, tenant: Tenant, run_id: RunId) -> list[Ticket]:
    """Every ticket that a run ever opened, oldest first."""
    statement = (
        with_winner()
        .where(tickets.c.tenant == tenant, tickets.c.run_id == run_id)
        .order_by(tickets.c.created_at, tickets.c.id)
    )
    rows = await connection.execute(statement)
    return [ticket_of(row) for row in rows.mappings()]


async def unsettled_of_run(connection: Connection, tenant: Tenant, run_id: RunId) -> list[Ticket]:
    """Open tickets, and answered ones that the run hasn't applied yet."""
    return [ticket for ticket in await of_run(connection, tenant, run_id) if ticket.is_unsettled]


async def open_of_runs(
    connection: Connection, tenant: Tenant, run_ids: Sequence[RunId]
) -> dict[RunId, list[Ticket]]:
    """The open tickets of each run that has any, oldest first."""
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
    for row in (await connection.execute(statement)).mappings():
        ticket = ticket_of(row)
        found.setdefault(ticket.run_id, []).append(ticket)
    return found


async def bytes_of_open(
    connection: Connection, tenant: Tenant, run_ids: Sequence[RunId]
) -> dict[RunId, int]:
    """How large the open tickets of each run are that has any, as text."""
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
    row = (await connection.execute(statement)).mappings().one_or_none()
    return None if row is None else ticket_of(row)


async def mark_applied(connection: Connection, tenant: Tenant, keys: Sequence[TicketKey]) -> None:
    """The run has used these answers; they are never used again."""
    if keys:
        await connection.execute(
            update(tickets)
            .where(
                tickets.c.tenant == tenant,
                tickets.c.id.in_(keys),
                tickets.c.applied_at.is_(None),
            )
            .values(applied_at=func.now())
        )


async def void_open(connection: Connection, tenant: Tenant, run_id: RunId) -> None:
    """Nobody needs to answer a run that is done."""
    await _void(connection, tickets.c.tenant == tenant, tickets.c.run_id == run_id)


async def void(
    connection: Connection, tenant: Tenant, run_id: RunId, keys: Sequence[TicketKey]
) -> None:
    """Nobody needs to answer these of a run's any more."""
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
