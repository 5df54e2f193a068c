"""The frequent decision: one statement reads a waiting run, and one writes the answers and claims the run.

Between the two no row is locked. The second one locks the rows in the usual order, and writes only if the run still
waits under the same attempt and the tickets are still open. While a run waits, no ticket is opened.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import asyncpg

from app.domain.ids import RunId, Tenant, TicketKey, WorkerId
from app.domain.json_values import storable
from app.domain.runs.claimed_run import ClaimedRun
from app.domain.runs.runs import Running, RunRecord
from app.domain.tickets.decisions import Decision, DecisionEffect
from app.domain.tickets.tickets import ANSWERED_BY_PROGRAMS, NoticeKind, Ticket
from app.storage.codec import run_of, storable_json
from app.storage.events.columns import EVENTS, event_values
from app.storage.events.event_log import EventEntry
from app.storage.postgres.database import Connection, RawPool
from app.storage.postgres.named_parameters import NamedSql, Rows
from app.storage.tickets.tickets import TICKET_AS_JSON, ticket_of_json

# Such a run can be claimed with a decision: it was not lost, and has no message that the claim would have to log.
_CLAIMABLE = """r.status = 'waiting' AND r.losses = 0 AND r.unread_inputs = 0 AND r.waiting_until IS NULL
    AND r.pause_requested_at IS NULL AND r.cancel_requested_at IS NULL"""

_READ = NamedSql(f"""
SELECT r.*, (
    SELECT jsonb_agg({TICKET_AS_JSON} ORDER BY k.created_at, k.id)
    FROM tickets k LEFT JOIN decisions d
        ON d.tenant = k.tenant AND d.ticket = k.id AND d.decision_id = k.decision_id
    WHERE k.tenant = r.tenant AND k.run_id = r.id AND k.status = 'open'
) AS tickets
FROM runs r
WHERE r.tenant = :tenant AND r.id = :run_id AND r.parent_run_id IS NULL AND {_CLAIMABLE}
""")


async def read_waiting(
    connection: Connection, tenant: Tenant, run_id: RunId
) -> tuple[RunRecord, list[Ticket]] | None:
    """A run that can be claimed with a decision, and its open tickets, oldest first. None for a child's run."""
    row = await connection.driver.fetchrow(*_READ(tenant=tenant, run_id=run_id))
    if row is None:
        return None
    return run_of(row), [ticket_of_json(columns) for columns in row["tickets"] or ()]


_DECISION = {
    "ticket": "uuid",
    "decision_id": "text",
    "action": "text",
    "payload": "jsonb",
    "reason": "text",
    "subject": "text",
}
_DECISIONS = Rows("d", _DECISION)
_PROGRAMS = ", ".join(f"'{kind}'" for kind in sorted(ANSWERED_BY_PROGRAMS))

_DECIDE_AND_CLAIM = NamedSql(f"""
WITH thread AS (
    SELECT t.next_message_seq, t.state FROM threads t
    WHERE t.tenant = :tenant AND t.id = :thread_id FOR NO KEY UPDATE
), run AS (
    SELECT r.id FROM runs r, thread
    WHERE r.tenant = :tenant AND r.id = :run_id AND r.attempt = :attempt AND {_CLAIMABLE}
    FOR NO KEY UPDATE OF r
), ticket AS (
    SELECT k.id FROM tickets k JOIN run ON run.id = k.run_id
    WHERE k.tenant = :tenant AND k.id = ANY(:tickets::uuid[]) AND k.status = 'open'
    ORDER BY k.id FOR NO KEY UPDATE OF k
), ready AS (
    SELECT run.id FROM run WHERE (SELECT count(*) FROM ticket) = cardinality(:tickets::uuid[])
), decision AS (
    INSERT INTO decisions (tenant, {", ".join(_DECISION)}, effect, at)
    SELECT :tenant, {", ".join(f"d.{name}" for name in _DECISION)}, '{DecisionEffect.DECIDED}', :at
    FROM {_DECISIONS.sql}, ready
), decided AS (
    UPDATE tickets t SET status = 'decided', decision_id = d.decision_id, updated_at = :at
    FROM {_DECISIONS.sql}, ready WHERE t.tenant = :tenant AND t.id = d.ticket
    RETURNING t.id, t.kind, t.decision_id
), notice AS (
    INSERT INTO ticket_feed (tenant, ticket, kind, decision_id)
    SELECT :tenant, id, '{NoticeKind.DECIDED}', decision_id FROM decided WHERE kind NOT IN ({_PROGRAMS})
), claimed AS (
    UPDATE runs r SET status = 'running', attempt = r.attempt + 1, owner = :owner, dispatch_id = NULL,
        waiting_reason = NULL, waiting_message = NULL, updated_at = :at
    FROM ready WHERE r.tenant = :tenant AND r.id = ready.id
    RETURNING r.attempt
), head AS (
    UPDATE event_heads h SET run_id = :run_id, attempt = claimed.attempt, next_seq = h.next_seq + :events::int
    FROM claimed WHERE h.tenant = :tenant AND h.thread_id = :thread_id
    RETURNING h.next_seq - :events::int AS first_seq
), event AS (
    INSERT INTO events (tenant, thread_id, seq, run_id, step, ts, event_type, body)
    SELECT :tenant, :thread_id, head.first_seq + e.position, :run_id, e.step, :at, e.event_type, e.body
    FROM head, {EVENTS.sql}
)
SELECT claimed.attempt, head.first_seq, thread.next_message_seq, thread.state FROM claimed, head, thread
""")


@dataclass(frozen=True, slots=True)
class DecidedAndClaimed:
    claimed: ClaimedRun
    first_seq: int
    """The number of the first event."""


async def decide_and_claim(
    pool: RawPool,
    run: RunRecord,
    answers: Sequence[tuple[TicketKey, Decision]],
    events: Sequence[EventEntry],
    owner: WorkerId,
    at: datetime,
) -> DecidedAndClaimed | None:
    """Record decisions that take effect, append their events, and claim the run.

    Returns None, and writes nothing, if the run or one of the tickets has changed since it was read.
    """
    try:
        row = await pool.fetchrow(
            *_DECIDE_AND_CLAIM(
                tenant=run.tenant,
                thread_id=run.thread_id,
                run_id=run.id,
                attempt=run.attempt,
                owner=owner,
                at=at,
                events=len(events),
                tickets=[ticket for ticket, _ in answers],
                **_DECISIONS.values(_row(ticket, decision) for ticket, decision in answers),
                **event_values([events]),
            )
        )
    except asyncpg.UniqueViolationError:
        # The decision's id was refused before, or another decision took effect.
        return None
    if row is None:
        return None
    claimed = ClaimedRun(
        record=replace(
            run, state=Running(owner), attempt=row["attempt"], dispatch_id=None, updated_at=at
        ),
        next_seq=row["next_message_seq"],
        previous_state=run.status,
        thread_state=row["state"] or {},
    )
    return DecidedAndClaimed(claimed, row["first_seq"])


def _row(ticket: TicketKey, decision: Decision) -> dict[str, object]:
    payload = decision.answer.payload
    return {
        "ticket": ticket,
        "decision_id": decision.decision_id,
        "action": decision.answer.action.value,
        "payload": None if payload is None else storable_json(payload),
        "reason": storable(decision.answer.reason),
        "subject": decision.subject,
    }
