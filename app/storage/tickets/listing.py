"""Lists of tickets: the inbox, and what was decided about calls alike."""

from datetime import datetime

from sqlalchemy import ColumnElement, and_, literal, or_, select, tuple_

from app.domain.ids import Tenant, TicketKey
from app.domain.principals import Principal, Scope
from app.domain.slices import Slice
from app.domain.tickets.decisions import DecisionEffect
from app.domain.tickets.tickets import ANSWERED_BY_PROGRAMS, Ticket, TicketFilter, TicketStatus
from app.storage.page_rows import page_rows
from app.storage.postgres.database import Connection
from app.storage.tables import decisions, runs, tickets
from app.storage.tickets.tickets import ticket_of, with_winner


async def page(
    connection: Connection,
    tenant: Tenant,
    wanted: TicketFilter,
    *,
    before: tuple[datetime, TicketKey] | None,
    limit: int,
) -> Slice[Ticket]:
    """The inbox: tickets of a tenant, newest first, before a place in that order."""
    statement = with_winner().where(tickets.c.tenant == tenant, *conditions(wanted))
    if before is not None:
        statement = statement.where(tuple_(tickets.c.created_at, tickets.c.id) < before)
    return await page_rows(
        connection, statement, ticket_of, by=("created_at", "id"), descending=True, limit=limit
    )


def conditions(wanted: TicketFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = [
        tickets.c.kind.not_in(ANSWERED_BY_PROGRAMS)
        if wanted.kind is None
        else tickets.c.kind == wanted.kind.value
    ]
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
) -> Slice[Ticket]:
    """What was decided about calls of the same tool by the same agent, newest first."""
    statement = with_winner().where(
        tickets.c.tenant == tenant,
        tickets.c.agent_id == like.agent_id,
        tickets.c.tool_name == like.tool_name,
        tickets.c.id != like.id,
        tickets.c.status.in_((TicketStatus.DECIDED.value, TicketStatus.EXPIRED.value)),
    )
    return await page_rows(
        connection, statement, ticket_of, by=("created_at", "id"), descending=True, limit=limit
    )
