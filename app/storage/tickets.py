"""Tickets and their decisions: opened by a checkpoint, decided or expired once, voided with their run.

Whatever becomes of a ticket is noted in the feed of its tenant's inbox in the same transaction.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Interval,
    Select,
    Text,
    and_,
    bindparam,
    func,
    literal,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from app.domain.decisions import Action, Answer, Attempt, Decision, DecisionEffect
from app.domain.ids import AgentId, CallId, RunId, Tenant, ThreadId, TicketKey
from app.domain.json_values import storable
from app.domain.principals import Principal, Scope
from app.domain.ticket_terms import (
    OnExpiry,
    TicketTerms,
    approvers_from_json,
    approvers_to_json,
)
from app.domain.tickets import NoticeKind, Ticket, TicketFilter, TicketKind, TicketStatus
from app.domain.tool_calls import ResumeMode
from app.storage.codec import Row
from app.storage.database import Connection
from app.storage.tables import decisions, runs, ticket_feed, tickets

_winner = (
    (decisions.c.tenant == tickets.c.tenant)
    & (decisions.c.ticket == tickets.c.id)
    & (decisions.c.decision_id == tickets.c.decision_id)
)
decision_columns = (
    decisions.c.action.label("d_action"),
    decisions.c.payload.label("d_payload"),
    decisions.c.reason.label("d_reason"),
    decisions.c.subject.label("d_subject"),
    decisions.c.at.label("d_at"),
)


def with_winner() -> Select[tuple[object, ...]]:
    return select(tickets, *decision_columns).join_from(tickets, decisions, _winner, isouter=True)


def ticket_of(row: Row) -> Ticket:
    return Ticket(
        key=TicketKey(row["id"]),
        run_id=RunId(row["run_id"]),
        thread_id=ThreadId(row["thread_id"]),
        agent_id=AgentId(row["agent_id"]),
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
        decision=None if row["d_action"] is None else decision_of(row),
        applied_at=row["applied_at"],
        evidence=row["evidence"],
        terms=TicketTerms(
            on_expiry=OnExpiry(row["on_expiry"] or OnExpiry.REJECT),
            approvers=None if row["approvers"] is None else approvers_from_json(row["approvers"]),
        ),
        expires_at=row["expires_at"],
    )


def decision_of(row: Row) -> Decision:
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
                "id": ticket.key,
                "run_id": ticket.run_id,
                "thread_id": ticket.thread_id,
                "agent_id": ticket.agent_id,
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
                **_terms_columns(ticket.terms),
                "created_at": ticket.created_at,
                "updated_at": ticket.updated_at,
            }
            for ticket in opened
        ],
    )
    await _notice(connection, tenant, [ticket.key for ticket in opened], NoticeKind.OPENED)


def _terms_columns(terms: TicketTerms) -> dict[str, Any]:
    lasts = terms.expires_in
    return {
        "approvers": None if terms.approvers is None else approvers_to_json(terms.approvers),
        "on_expiry": None if lasts is None else terms.on_expiry.value,
        "lasts": None if lasts is None else timedelta(seconds=lasts),
        "half": None if lasts is None else timedelta(seconds=lasts / 2),
    }


async def _notice(
    connection: Connection,
    tenant: Tenant,
    keys: Sequence[TicketKey],
    kind: NoticeKind,
    decision_id: str | None = None,
) -> None:
    if not keys:
        return
    for_people = (
        select(
            tickets.c.tenant,
            tickets.c.id,
            literal(kind.value),
            literal(decision_id, Text()),
        )
        .where(
            tickets.c.tenant == tenant,
            tickets.c.id.in_(keys),
            tickets.c.kind != TicketKind.CHILD.value,
        )
        .order_by(tickets.c.created_at, tickets.c.id)
    )
    await connection.execute(
        insert(ticket_feed).from_select(["tenant", "ticket", "kind", "decision_id"], for_people)
    )


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


async def get(connection: Connection, tenant: Tenant, key: TicketKey) -> Ticket | None:
    statement = with_winner().where(tickets.c.tenant == tenant, tickets.c.id == key)
    row = (await connection.execute(statement)).mappings().one_or_none()
    return None if row is None else ticket_of(row)


async def decide(
    connection: Connection, tenant: Tenant, key: TicketKey, decision: Decision
) -> None:
    """Record the winning answer; the caller holds the run's lock and saw the ticket open."""
    await _record(connection, tenant, key, decision, DecisionEffect.DECIDED)
    await connection.execute(
        update(tickets)
        .where(tickets.c.tenant == tenant, tickets.c.id == key, tickets.c.status == "open")
        .values(
            status=TicketStatus.DECIDED.value,
            decision_id=decision.decision_id,
            updated_at=decision.at,
        )
    )
    await _notice(connection, tenant, [key], NoticeKind.DECIDED, decision.decision_id)


async def vote(connection: Connection, tenant: Tenant, key: TicketKey, decision: Decision) -> None:
    """Record an answer that counts once enough people have given it, under the run's lock."""
    await _record(connection, tenant, key, decision, DecisionEffect.VOTED)
    await _notice(connection, tenant, [key], NoticeKind.VOTED, decision.decision_id)


async def note_refusal(
    connection: Connection, tenant: Tenant, key: TicketKey, decision: Decision, refusal: str
) -> None:
    """Keep that somebody has tried; who tries the same again and again is noted once."""
    statement = insert(decisions).values(
        **_decision_row(tenant, key, decision, DecisionEffect.REFUSED), refusal=refusal
    )
    await connection.execute(
        statement.on_conflict_do_nothing(index_elements=["tenant", "ticket", "decision_id"])
    )


async def _record(
    connection: Connection,
    tenant: Tenant,
    key: TicketKey,
    decision: Decision,
    effect: DecisionEffect,
) -> None:
    await connection.execute(
        insert(decisions).values(**_decision_row(tenant, key, decision, effect))
    )


def _decision_row(
    tenant: Tenant, key: TicketKey, decision: Decision, effect: DecisionEffect
) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "ticket": key,
        "decision_id": decision.decision_id,
        "action": decision.answer.action.value,
        "payload": storable(decision.answer.payload),
        "reason": storable(decision.answer.reason),
        "subject": decision.subject,
        "effect": effect.value,
        "at": decision.at,
    }


async def attempts(
    connection: Connection, tenant: Tenant, keys: Sequence[TicketKey]
) -> list[Attempt]:
    """All answers that were given to some tickets, oldest first."""
    statement = (
        select(decisions.c.ticket, decisions.c.decision_id, *decision_columns)
        .add_columns(decisions.c.effect, decisions.c.refusal)
        .where(decisions.c.tenant == tenant, decisions.c.ticket.in_(keys))
        .order_by(decisions.c.at, decisions.c.decision_id)
    )
    rows = await connection.execute(statement)
    return [
        Attempt(
            TicketKey(row["ticket"]),
            decision_of(row),
            DecisionEffect(row["effect"]),
            row["refusal"],
        )
        for row in rows.mappings()
    ]


async def runs_with_due(connection: Connection, limit: int) -> list[tuple[Tenant, ThreadId, RunId]]:
    """Runs with a ticket whose time is over, or that people have to be reminded of."""
    is_over = and_(
        tickets.c.status == "open",
        tickets.c.on_expiry != OnExpiry.KEEP.value,
        tickets.c.expires_at <= func.now(),
    )
    to_remind = and_(
        tickets.c.status == "open",
        tickets.c.remind_at.is_not(None),
        tickets.c.remind_at <= func.now(),
    )
    columns = (tickets.c.tenant, tickets.c.thread_id, tickets.c.run_id)
    found: dict[tuple[Tenant, ThreadId, RunId], None] = {}
    for due, order in ((is_over, tickets.c.expires_at), (to_remind, tickets.c.remind_at)):
        rows = await connection.execute(select(*columns).where(due).order_by(order).limit(limit))
        for tenant, thread_id, run_id in rows:
            found[Tenant(tenant), ThreadId(thread_id), RunId(run_id)] = None
    return list(found)


async def expire_due(connection: Connection, tenant: Tenant, run_id: RunId) -> list[Ticket]:
    """End the time of whatever is due by now; the caller holds the run's lock."""
    rows = await connection.execute(
        update(tickets)
        .where(
            tickets.c.tenant == tenant,
            tickets.c.run_id == run_id,
            tickets.c.status == "open",
            tickets.c.on_expiry != OnExpiry.KEEP.value,
            tickets.c.expires_at <= func.now(),
        )
        .values(status=TicketStatus.EXPIRED.value, remind_at=None, updated_at=func.now())
        .returning(tickets.c.id)
    )
    keys = {row.id for row in rows}
    await _notice(connection, tenant, sorted(keys), NoticeKind.EXPIRED)
    if not keys:
        return []
    return [each for each in await of_run(connection, tenant, run_id) if each.key in keys]


_REMIND = text("""
UPDATE tickets SET reminders = reminders + 1, remind_at = CASE
    WHEN reminders = 0 THEN expires_at - (expires_at - remind_at) * 0.2
    WHEN reminders = 1 AND on_expiry = 'keep' THEN expires_at END
WHERE tenant = :tenant AND run_id = :run_id AND status = 'open' AND remind_at <= now()
RETURNING id::text, extract(epoch FROM expires_at - now())::float8 AS seconds_left
""")


async def remind_due(
    connection: Connection, tenant: Tenant, run_id: RunId
) -> list[tuple[Ticket, float]]:
    """Tickets that people are to be reminded of now, with the seconds that are left; at half of the time
    and when a tenth is left, and at its end once more if the ticket stays. Under the run's lock."""
    rows = await connection.execute(_REMIND, {"tenant": tenant, "run_id": run_id})
    left = {TicketKey(row.id): row.seconds_left for row in rows}
    await _notice(connection, tenant, sorted(left), NoticeKind.REMINDER)
    if not left:
        return []
    known = await of_run(connection, tenant, run_id)
    return [(each, left[each.key]) for each in known if each.key in left]


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
    void = (
        update(tickets)
        .where(tickets.c.tenant == tenant, tickets.c.run_id == run_id, tickets.c.status == "open")
        .values(status=TicketStatus.VOID.value, updated_at=func.now())
        .returning(tickets.c.tenant, tickets.c.id, tickets.c.kind)
        .cte("void")
    )
    await connection.execute(
        insert(ticket_feed).from_select(
            ["tenant", "ticket", "kind"],
            select(void.c.tenant, void.c.id, literal(NoticeKind.VOID.value)).where(
                void.c.kind != TicketKind.CHILD.value
            ),
        )
    )


async def page(
    connection: Connection,
    tenant: Tenant,
    wanted: TicketFilter,
    *,
    before: tuple[datetime, TicketKey] | None,
    limit: int,
) -> list[Ticket]:
    """The inbox: tickets of a tenant, newest first, before a place in that order."""
    statement = with_winner().where(tickets.c.tenant == tenant, *conditions(wanted))
    if before is not None:
        statement = statement.where(tuple_(tickets.c.created_at, tickets.c.id) < before)
    statement = statement.order_by(tickets.c.created_at.desc(), tickets.c.id.desc()).limit(limit)
    rows = await connection.execute(statement)
    return [ticket_of(row) for row in rows.mappings()]


def conditions(wanted: TicketFilter) -> list[ColumnElement[bool]]:
    # What a child run answers isn't for people.
    found: list[ColumnElement[bool]] = [tickets.c.kind != TicketKind.CHILD.value]
    if wanted.status is not None:
        found.append(tickets.c.status == wanted.status.value)
    if wanted.agent_id is not None:
        found.append(tickets.c.agent_id == wanted.agent_id)
    if wanted.tool is not None:
        found.append(tickets.c.tool_name == wanted.tool)
    if wanted.run_id is not None:
        found.append(tickets.c.run_id == wanted.run_id)
    if wanted.expires_before is not None:
        found.append(tickets.c.expires_at < wanted.expires_before)
    if wanted.decidable_by is not None:
        found.append(_decidable_by(wanted.decidable_by))
    return found


def _decidable_by(principal: Principal) -> ColumnElement[bool]:
    """As `ApproverRule.broken_by` would have it."""
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
    is_somebody_else = or_(~rule.has_key("not_starter"), ~started.exists())
    return and_(
        literal(principal.may(Scope.DECISIONS_WRITE)),
        tickets.c.status == TicketStatus.OPEN.value,
        or_(rule.is_(None), and_(has_scope, is_somebody_else, ~voted.exists())),
    )


async def decided_alike(
    connection: Connection, tenant: Tenant, like: Ticket, limit: int
) -> list[Ticket]:
    """What was decided about calls of the same tool by the same agent, newest first."""
    statement = (
        with_winner()
        .where(
            tickets.c.tenant == tenant,
            tickets.c.agent_id == like.agent_id,
            tickets.c.tool_name == like.tool_name,
            tickets.c.id != like.key,
            tickets.c.status.in_((TicketStatus.DECIDED.value, TicketStatus.EXPIRED.value)),
        )
        .order_by(tickets.c.created_at.desc())
        .limit(limit)
    )
    rows = await connection.execute(statement)
    return [ticket_of(row) for row in rows.mappings()]
