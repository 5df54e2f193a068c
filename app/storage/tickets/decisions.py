"""Decisions about tickets: those that took effect, votes, and rejected ones."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from app.domain.ids import Tenant, TicketKey
from app.domain.json_values import storable
from app.domain.tickets.decisions import (
    Action,
    Decision,
    DecisionAnswer,
    DecisionEffect,
    StoredAttempt,
)
from app.storage.codec import Row, storable_json
from app.storage.postgres.database import Connection
from app.storage.postgres.named_parameters import NamedSql
from app.storage.tables import decisions
from app.storage.tickets.notices import KINDS_OF_PROGRAMS

decision_columns = (
    decisions.c.action.label("d_action"),
    decisions.c.payload.label("d_payload"),
    decisions.c.reason.label("d_reason"),
    decisions.c.subject.label("d_subject"),
    decisions.c.at.label("d_at"),
)

DECISION_AS_JSON = (
    "jsonb_build_object('d_action', d.action, 'd_payload', d.payload, 'd_reason', d.reason, "
    "'d_subject', d.subject, 'd_at', d.at)"
)
"""SQL: these columns of the decision `d` as JSON."""

DECISION_NAMES = tuple(column.name for column in decision_columns)


def decision_of(row: Row) -> Decision:
    action = Action(row["d_action"])
    payload = row["d_payload"]
    return Decision(
        decision_id=row["decision_id"],
        answer=DecisionAnswer(
            action=action,
            arguments=payload if action is Action.EDIT else None,
            result=None if action is Action.EDIT else payload,
            reason=row["d_reason"],
        ),
        subject=row["d_subject"],
        at=row["d_at"],
    )


ANSWER_COLUMNS = {
    "ticket": "uuid",
    "decision_id": "text",
    "action": "text",
    "payload": "jsonb",
    "reason": "text",
    "subject": "text",
}
"""With their types in Postgres. `answer_values` gives their values."""
_ANSWERED = ", ".join(
    f":{name}::text::jsonb" if type_ == "jsonb" else f":{name}::{type_}"
    for name, type_ in ANSWER_COLUMNS.items()
)
_RECORD = NamedSql(f"""
WITH decision AS (
    INSERT INTO decisions (tenant, effect, at, {", ".join(ANSWER_COLUMNS)})
    VALUES (:tenant::text, :effect::text, :at::timestamptz, {_ANSWERED})
), decided AS (
    UPDATE tickets SET status = 'decided', decision_id = :decision_id, updated_at = :at
    WHERE tenant = :tenant AND id = :ticket AND status = 'open' AND :effect = 'decided'
)
INSERT INTO ticket_feed (tenant, ticket, kind, decision_id)
SELECT tenant, id, :effect, :decision_id FROM tickets
WHERE tenant = :tenant AND id = :ticket AND kind NOT IN ({KINDS_OF_PROGRAMS})
""")


async def decide(
    connection: Connection, tenant: Tenant, key: TicketKey, decision: Decision
) -> None:
    """Record the decision that takes effect. The caller holds the run's lock and read the ticket as open."""
    await _record(connection, tenant, key, decision, DecisionEffect.DECIDED)


async def vote(connection: Connection, tenant: Tenant, key: TicketKey, decision: Decision) -> None:
    """Record a vote, which counts toward the ticket's quorum. The caller holds the run's lock."""
    await _record(connection, tenant, key, decision, DecisionEffect.VOTED)


async def record_refusal(
    connection: Connection, tenant: Tenant, key: TicketKey, decision: Decision, refusal: str
) -> None:
    """Record a rejected decision, once per decision id."""
    values = answer_values(key, decision) | {"payload": storable(decision.answer.payload)}
    statement = insert(decisions).values(
        tenant=tenant,
        effect=DecisionEffect.REFUSED.value,
        at=decision.at,
        refusal=refusal,
        **values,
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
    """Write the decision, its ticket's status and the notice in one statement, to save round trips."""
    await connection.driver.execute(
        *_RECORD(tenant=tenant, effect=effect.value, at=decision.at, **answer_values(key, decision))
    )


def answer_values(key: TicketKey, decision: Decision) -> dict[str, Any]:
    """The columns that the answer of a decision gives. Its payload is JSON text."""
    payload = decision.answer.payload
    return {
        "ticket": key,
        "decision_id": decision.decision_id,
        "action": decision.answer.action.value,
        "payload": None if payload is None else storable_json(payload),
        "reason": storable(decision.answer.reason),
        "subject": decision.subject,
    }


async def attempts(
    connection: Connection, tenant: Tenant, keys: Sequence[TicketKey]
) -> list[StoredAttempt]:
    """All decisions about these tickets, oldest first."""
    statement = (
        select(decisions.c.ticket, decisions.c.decision_id, *decision_columns)
        .add_columns(decisions.c.effect, decisions.c.refusal)
        .where(decisions.c.tenant == tenant, decisions.c.ticket.in_(keys))
        .order_by(decisions.c.at, decisions.c.decision_id)
    )
    rows = await connection.execute(statement)
    return [
        StoredAttempt(
            TicketKey(row["ticket"]),
            decision_of(row),
            DecisionEffect(row["effect"]),
            row["refusal"],
        )
        for row in rows
    ]
