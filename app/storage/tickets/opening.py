"""Opens tickets: the rows and the notices of new tickets, within the statement of a checkpoint."""

from collections.abc import Iterable
from typing import Any

from app.domain.ids import Tenant
from app.domain.tickets.terms import approvers_to_json
from app.domain.tickets.tickets import ANSWERED_BY_PROGRAMS, NoticeKind, Ticket
from app.storage.codec import storable_json
from app.storage.tickets.notices import KINDS_OF_PROGRAMS

_COLUMNS = {
    "tenant": "text",
    "id": "uuid",
    "run_id": "uuid",
    "thread_id": "uuid",
    "agent_id": "text",
    "ticket_id": "text",
    "kind": "text",
    "call_id": "text",
    "step_index": "int",
    "tool_name": "text",
    "tool_effect": "text",
    "args_digest": "text",
    "resume_mode": "text",
    "allowed_actions": "text[]",
    "response_schema": "jsonb",
    "reason": "text",
    "message": "text",
    "evidence": "jsonb",
    "carry": "jsonb",
    "event_name": "text",
    "event_key": "text",
    "event_number": "int",
    "status": "text",
    "approvers": "jsonb",
    "on_expiry": "text",
    "created_at": "timestamptz",
    "updated_at": "timestamptz",
}


def opened_ctes(parameter: str, join: str = "") -> str:
    """Common table expressions that insert the tickets of a JSON parameter and their notices.

    `k` is a row of the parameter; `join` may restrict which rows are inserted. Expiry uses the database's clock,
    because the clocks of replicas may jump.
    """
    names = ", ".join(_COLUMNS)
    typed = ", ".join(f"{name} {type_}" for name, type_ in _COLUMNS.items())
    return f"""opened AS (
    INSERT INTO tickets ({names}, arguments, expires_at, remind_at)
    SELECT {", ".join(f"k.{name}" for name in _COLUMNS)}, coalesce(k.arguments, 'null'),
        now() + make_interval(secs => k.expires_in), now() + make_interval(secs => k.remind_in)
    FROM jsonb_to_recordset({parameter}::text::jsonb)
        AS k(i int, {typed}, arguments jsonb, expires_in float8, remind_in float8)
    {join}
    RETURNING tenant, id, kind, created_at
), opened_notice AS (
    INSERT INTO ticket_feed (tenant, ticket, kind)
    SELECT tenant, id, '{NoticeKind.OPENED}' FROM opened WHERE kind NOT IN ({KINDS_OF_PROGRAMS})
    ORDER BY created_at, id
)"""


def opened_json(opened: Iterable[tuple[int, Tenant, Ticket]]) -> str:
    """The parameter of `opened_ctes`: tickets with their tenant and the number of their checkpoint."""
    return storable_json([{"i": i, "tenant": tenant, **_row(each)} for i, tenant, each in opened])


def _row(ticket: Ticket) -> dict[str, Any]:
    event, terms = ticket.event, ticket.terms
    expires_in = terms.expires_in
    reminds = expires_in is not None and ticket.kind not in ANSWERED_BY_PROGRAMS
    return {
        "id": ticket.id,
        "run_id": ticket.run_id,
        "thread_id": ticket.thread_id,
        "agent_id": ticket.agent_id,
        "ticket_id": ticket.name,
        "kind": ticket.kind.value,
        "call_id": ticket.call_id,
        "step_index": ticket.step_index,
        "tool_name": ticket.tool_name,
        "tool_effect": None if ticket.tool_effect is None else ticket.tool_effect.value,
        "arguments": ticket.arguments,
        "args_digest": ticket.args_digest,
        "resume_mode": ticket.resume_mode.value,
        "allowed_actions": sorted(ticket.allowed_actions),
        "response_schema": ticket.response_schema,
        "reason": ticket.reason,
        "message": ticket.message,
        "evidence": ticket.evidence,
        "carry": ticket.carry,
        "event_name": None if event is None else event.name,
        "event_key": None if event is None else event.key,
        "event_number": None if event is None else event.number,
        "status": ticket.status.value,
        "approvers": None if terms.approvers is None else approvers_to_json(terms.approvers),
        "on_expiry": None if expires_in is None else terms.on_expiry.value,
        "expires_in": expires_in,
        "remind_in": expires_in / 2 if reminds and expires_in is not None else None,
        "created_at": ticket.created_at.isoformat(),
        "updated_at": ticket.updated_at.isoformat(),
    }
