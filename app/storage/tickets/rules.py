"""Remembered rules: created together with a decision, read by the approval gate, revoked by users."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Text, bindparam, func, insert, or_, select, update

from app.domain.ids import AgentId, RuleId, RunId, Tenant, ThreadId, TicketKey
from app.domain.json_values import storable
from app.domain.rules.parser import parse_pattern
from app.domain.rules.remembered import RememberedRule, RuleScope
from app.domain.rules.rules import Behavior, Rule
from app.domain.slices import PageRequest, Slice
from app.storage.codec import Row
from app.storage.page_rows import page_of
from app.storage.postgres.database import Connection
from app.storage.postgres.statements import prepared
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
    """Insert a rule, in the transaction of the decision that creates it."""
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


def _of_scope(scope: RuleScope, id: str) -> ColumnElement[bool]:
    return (rules.c.scope == scope.value) & (rules.c.scope_id == bindparam(id, type_=Text()))


_FOR_CALLS = prepared(
    select(rules).where(
        rules.c.tenant == bindparam("tenant"),
        or_(
            _of_scope(RuleScope.RUN, "run_id"),
            _of_scope(RuleScope.THREAD, "thread_id"),
            _of_scope(RuleScope.AGENT, "agent_id"),
        ),
        rules.c.agent_id == bindparam("agent_id"),
        rules.c.revoked_at.is_(None),
    )
)


async def for_calls(
    connection: Connection, tenant: Tenant, run_id: RunId, thread_id: ThreadId, agent_id: AgentId
) -> Sequence[Rule]:
    """The rules in force for calls of an agent in a run."""
    rows = await connection.execute(
        _FOR_CALLS,
        {"tenant": tenant, "run_id": run_id, "thread_id": thread_id, "agent_id": agent_id},
    )
    return [_rule_of(row).rule for row in rows]


async def page(
    connection: Connection,
    tenant: Tenant,
    *,
    scope: RuleScope | None,
    scope_id: str | None,
    agent_id: AgentId | None,
    with_revoked: bool,
    requested: PageRequest,
) -> Slice[RememberedRule]:
    """Rules of a tenant by creation."""
    statement = select(rules).where(rules.c.tenant == tenant)
    if scope is not None:
        statement = statement.where(rules.c.scope == scope.value)
    if scope_id is not None:
        statement = statement.where(rules.c.scope_id == scope_id)
    if agent_id is not None:
        statement = statement.where(rules.c.agent_id == agent_id)
    if not with_revoked:
        statement = statement.where(rules.c.revoked_at.is_(None))
    return await page_of(connection, statement, _rule_of, requested)


async def revoke(connection: Connection, tenant: Tenant, id: RuleId, *, by: str) -> bool:
    """Revoke a rule; the first revocation is kept. False if there is no such rule."""
    statement = (
        update(rules)
        .where(rules.c.tenant == tenant, rules.c.id == id)
        .values(
            revoked_at=func.coalesce(rules.c.revoked_at, func.now()),
            revoked_by=func.coalesce(rules.c.revoked_by, by),
        )
    )
    return (await connection.execute(statement)).rowcount == 1
