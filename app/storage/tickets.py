"""Tickets and their decisions: opened by a checkpoint, decided once, voided with their run."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Select, func, insert, select, tuple_, update

from app.domain.decisions import Action, Answer, Decision
from app.domain.ids import AgentId, CallId, RunId, Tenant, ThreadId, TicketKey
from app.domain.json_values import storable
from app.domain.tickets import Ticket, TicketKind, TicketStatus
from app.domain.tool_calls import ResumeMode
from app.storage.codec import Row
from app.storage.database import Connection
from app.storage.tables import decisions, tickets

_winner = (
    (decisions.c.tenant == tickets.c.tenant)
    & (decisions.c.ticket == tickets.c.id)
    & (decisions.c.decision_id == tickets.c.decision_id)
)
_decision_columns = (
    decisions.c.action.label("d_action"),
    decisions.c.payload.label("d_payload"),
    decisions.c.reason.label("d_reason"),
    decisions.c.subject.label("d_subject"),
    decisions.c.at.label("d_at"),
)


def _with_winner() -> Select[tuple[object, ...]]:
    return select(tickets, *_decision_columns).join_from(tickets, decisions, _winner, isouter=True)


def _ticket_of(row: Row) -> Ticket:
    return Ticket(
        key=TicketKey(row["id"]),
        run_id=RunId(row["run_id"]),
        thread_id=ThreadId(row["thread_id"]),
        ticket_id=row["ticket_id"],
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
        decision=None if row["d_action"] is None else _decision_of(row),
        applied_at=row["applied_at"],
        evidence=row["evidence"],
    )


def _decision_of(row: Row) -> Decision:
    action = Action(row["d_action"])
    payload = row["d_payload"]
    return Decision(
        decision_id=row["decision_id"],
        answer=Answer(
            action=action,
            arguments=payload if action is Action.EDIT else None,
            result=None if action is Action.EDIT else payload,
            reason=row["d_reason"],
        ),
        subject=row["d_subject"],
        at=row["d_at"],
    )


async def open_all(
    connection: Connection, tenant: Tenant, agent_id: AgentId, opened: Sequence[Ticket]
) -> None:
    """New questions; two open ones of one name in a run are refused by the index."""
    if not opened:
        return
    await connection.execute(
        insert(tickets),
        [
            {
                "tenant": tenant,
                "id": ticket.key,
                "run_id": ticket.run_id,
                "thread_id": ticket.thread_id,
                "agent_id": agent_id,
                "ticket_id": storable(ticket.ticket_id),
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
                "created_at": ticket.created_at,
                "updated_at": ticket.updated_at,
            }
            for ticket in opened
        ],
    )


async def of_run(connection: Connection, tenant: Tenant, run_id: RunId) -> list[Ticket]:
    """Every ticket that a run ever opened, oldest first."""
    statement = (
        _with_winner()
        .where(tickets.c.tenant == tenant, tickets.c.run_id == run_id)
        .order_by(tickets.c.created_at, tickets.c.id)
    )
    rows = await connection.execute(statement)
    return [_ticket_of(row) for row in rows.mappings()]


async def unsettled_of_run(connection: Connection, tenant: Tenant, run_id: RunId) -> list[Ticket]:
    """Open tickets, and answered ones that the run hasn't applied yet."""
    return [ticket for ticket in await of_run(connection, tenant, run_id) if ticket.is_unsettled]


async def get(connection: Connection, tenant: Tenant, key: TicketKey) -> Ticket | None:
    statement = _with_winner().where(tickets.c.tenant == tenant, tickets.c.id == key)
    row = (await connection.execute(statement)).mappings().one_or_none()
    return None if row is None else _ticket_of(row)


async def decide(
    connection: Connection, tenant: Tenant, key: TicketKey, decision: Decision
) -> None:
    """Record the winning answer; the caller holds the run's lock and saw the ticket open."""
    await connection.execute(
        insert(decisions).values(
            tenant=tenant,
            ticket=key,
            decision_id=decision.decision_id,
            action=decision.answer.action.value,
            payload=storable(decision.answer.payload),
            reason=storable(decision.answer.reason),
            subject=decision.subject,
            effect="decided",
            at=decision.at,
        )
    )
    await connection.execute(
        update(tickets)
        .where(tickets.c.tenant == tenant, tickets.c.id == key, tickets.c.status == "open")
        .values(
            status=TicketStatus.DECIDED.value,
            decision_id=decision.decision_id,
            updated_at=decision.at,
        )
    )


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
    await connection.execute(
        update(tickets)
        .where(tickets.c.tenant == tenant, tickets.c.run_id == run_id, tickets.c.status == "open")
        .values(status=TicketStatus.VOID.value, updated_at=func.now())
    )


async def page(
    connection: Connection,
    tenant: Tenant,
    *,
    status: TicketStatus | None,
    agent_id: AgentId | None,
    tool: str | None,
    run_id: RunId | None,
    before: tuple[datetime, TicketKey] | None,
    limit: int,
) -> list[Ticket]:
    """The inbox: tickets of a tenant, newest first, before a place in that order."""
    statement = _with_winner().where(tickets.c.tenant == tenant)
    if status is not None:
        statement = statement.where(tickets.c.status == status.value)
    if agent_id is not None:
        statement = statement.where(tickets.c.agent_id == agent_id)
    if tool is not None:
        statement = statement.where(tickets.c.tool_name == tool)
    if run_id is not None:
        statement = statement.where(tickets.c.run_id == run_id)
    if before is not None:
        statement = statement.where(tuple_(tickets.c.created_at, tickets.c.id) < before)
    statement = statement.order_by(tickets.c.created_at.desc(), tickets.c.id.desc()).limit(limit)
    rows = await connection.execute(statement)
    return [_ticket_of(row) for row in rows.mappings()]
