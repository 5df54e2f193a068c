"""Remembered rules: made with the decision that they come from, read at the gate, revoked by people."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, insert, select, tuple_, update

from app.domain.ids import AgentId, RuleId, RunId, Tenant, ThreadId, TicketKey
from app.domain.json_values import storable
from app.domain.rules.parser import parse_pattern
from app.domain.rules.remembered import RememberedRule, RuleScope
from app.domain.rules.rules import Behavior, Rule
from app.domain.slices import Slice
from app.storage.codec import Row
from app.storage.page_rows import page_rows
from app.storage.postgres.database import Connection
from app.storage.tables import rules


def _rule_of(row: Row) -> RememberedRule:
    return RememberedRule(
        id=RuleId(row["id"]),
        scope=RuleScope(row["scope"]),
        scope_id=row["scope_id"],
        agent_id=AgentId(row["agent_id"]),
        rule=Rule(
            pattern=parse_pattern(row["pattern"]),
            behavior=Behavior(row["behavior"]),
            arguments=row["arguments"],
            reason=row["reason"],
        ),
        ticket=None if row["ticket"] is None else TicketKey(row["ticket"]),
        created_by=row["created_by"],
        created_at=row["created_at"],
        revoked_by=row["revoked_by"],
        revoked_at=row["revoked_at"],
    )


async def add(connection: Connection, tenant: Tenant, made: RememberedRule) -> None:
    """Remember a rule, in the transaction of the decision that it comes from."""
    await connection.execute(
        insert(rules).values(
            tenant=tenant,
            id=made.id,
            scope=made.scope.value,
            scope_id=made.scope_id,
            agent_id=made.agent_id,
            pattern=storable(made.rule.pattern.text),
            arguments=storable(made.rule.arguments),
            behavior=made.rule.behavior.value,
            ticket=made.ticket,
            reason=storable(made.rule.reason),
            created_by=made.created_by,
            created_at=made.created_at,
        )
    )


async def for_calls(
    connection: Connection, tenant: Tenant, run_id: RunId, thread_id: ThreadId, agent_id: AgentId
) -> Sequence[Rule]:
    """The rules that count for calls of an agent in a run, as they are now."""
    places = [
        (RuleScope.RUN.value, run_id),
        (RuleScope.THREAD.value, thread_id),
        (RuleScope.AGENT.value, agent_id),
    ]
    statement = select(rules).where(
        rules.c.tenant == tenant,
        tuple_(rules.c.scope, rules.c.scope_id).in_(places),
        rules.c.agent_id == agent_id,
        rules.c.revoked_at.is_(None),
    )
    rows = await connection.execute(statement)
    return [_rule_of(row).rule for row in rows.mappings()]


async def page(
    connection: Connection,
    tenant: Tenant,
    *,
    scope: RuleScope | None,
    scope_id: str | None,
    agent_id: AgentId | None,
    with_revoked: bool,
    before: tuple[datetime, RuleId] | None,
    limit: int,
) -> Slice[RememberedRule]:
    """Rules of a tenant, newest first, before a place in that order."""
    statement = select(rules).where(rules.c.tenant == tenant)
    if scope is not None:
        statement = statement.where(rules.c.scope == scope.value)
    if scope_id is not None:
        statement = statement.where(rules.c.scope_id == scope_id)
    if agent_id is not None:
        statement = statement.where(rules.c.agent_id == agent_id)
    if not with_revoked:
        statement = statement.where(rules.c.revoked_at.is_(None))
    if before is not None:
        statement = statement.where(tuple_(rules.c.created_at, rules.c.id) < before)
    return await page_rows(
        connection, statement, _rule_of, by=("created_at", "id"), descending=True, limit=limit
    )


async def revoke(connection: Connection, tenant: Tenant, id: RuleId, *, by: str) -> bool:
    """Let a rule count no more; the first who revokes it is kept. False when there is none."""
    statement = (
        update(rules)
        .where(rules.c.tenant == tenant, rules.c.id == id)
        .values(
            revoked_at=func.coalesce(rules.c.revoked_at, func.now()),
            revoked_by=func.coalesce(rules.c.revoked_by, by),
        )
    )
    return (await connection.execute(statement)).rowcount == 1
