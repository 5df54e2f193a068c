"""The frequent decision: one statement reads a waiting run, and one writes the answers and claims the run.

Between the two no row is locked. The second one locks the rows in the usual order, and writes only if the run still
waits under the same attempt and the tickets are still open. While a run waits, no ticket is opened.

It also reads what the execution needs, as of its begin: the calls, the events and the log of a thread whose run waits
don't change before the run is claimed. The thread's next number shows that they haven't.
"""

from collections.abc import Sequence
from datetime import datetime

import asyncpg
from msgspec import Struct

from app.domain.claims.claimed_run import ClaimedRun
from app.domain.ids import RunId, Tenant, TicketKey, WorkerId
from app.domain.json_values import parsed
from app.domain.runs.runs import Running, RunRecord
from app.domain.structs import replace
from app.domain.tickets.decisions import Decision, DecisionEffect
from app.domain.tickets.tickets import NoticeKind, Ticket
from app.storage.checkpoints.loading import CALLS, LOG, MARK, PROGRESS, stored_progress
from app.storage.codec import run_of
from app.storage.events.columns import EVENTS, event_values
from app.storage.events.event_log import EventEntry
from app.storage.postgres.database import Connection, RawPool
from app.storage.postgres.named_parameters import NamedSql, Rows
from app.storage.tickets.decisions import ANSWER_COLUMNS, answer_values
from app.storage.tickets.notices import KINDS_OF_PROGRAMS
from app.storage.tickets.tickets import (
    IS_UNSETTLED,
    TICKET_AS_JSON,
    TICKETS_AND_DECISIONS,
    ticket_of_json,
)

# Such a run can be claimed with a decision: it was not lost, and has no message that the claim would have to log.
# IS TRUE: the run is searched by its key, not among all waiting runs in an index of them.
_CLAIMABLE = """(r.status = 'waiting') IS TRUE AND r.losses = 0 AND r.unread_inputs = 0 AND r.waiting_until IS NULL
    AND r.pause_requested_at IS NULL AND r.cancel_requested_at IS NULL"""

_READ = NamedSql(f"""
SELECT r.*, (
    SELECT jsonb_agg({TICKET_AS_JSON} ORDER BY k.created_at, k.id)
    FROM {TICKETS_AND_DECISIONS} WHERE k.tenant = r.tenant AND k.run_id = r.id AND {IS_UNSETTLED}
) AS tickets
FROM runs r
WHERE r.tenant = :tenant AND r.id = :run_id AND r.parent_run_id IS NULL AND {_CLAIMABLE}
""")


async def read_waiting(
    connection: Connection, tenant: Tenant, run_id: RunId
) -> tuple[RunRecord, list[Ticket]] | None:
    """A run that can be claimed with a decision, and its tickets that are open, or decided and not applied, oldest
    first. None for a child's run."""
    row = await connection.driver.fetchrow(*_READ(tenant=tenant, run_id=run_id))
    if row is None:
        return None
    return run_of(row), [ticket_of_json(columns) for columns in row["tickets"] or ()]


_DECISIONS = Rows("d", ANSWER_COLUMNS)

_DECIDE_AND_CLAIM = NamedSql(f"""
WITH thread AS (
    SELECT t.next_message_seq, t.state FROM threads t
    WHERE t.tenant = :tenant AND t.id = :thread_id FOR NO KEY UPDATE
), run AS (
    SELECT r.id FROM runs r, thread
    WHERE r.tenant = :tenant AND r.id = :run_id AND r.attempt = :attempt AND {_CLAIMABLE}
        -- The subselect reads the row as of the statement's begin.
        AND thread.next_message_seq = (
            SELECT s.next_message_seq FROM threads s WHERE s.tenant = :tenant AND s.id = :thread_id)
    FOR NO KEY UPDATE OF r
), ticket AS (
    SELECT k.id FROM tickets k JOIN run ON run.id = k.run_id
    WHERE k.tenant = :tenant AND k.id = ANY(:tickets::uuid[]) AND k.status = 'open'
    ORDER BY k.id FOR NO KEY UPDATE OF k
), ready AS (
    SELECT run.id FROM run WHERE (SELECT count(*) FROM ticket) = cardinality(:tickets::uuid[])
), decision AS (
    INSERT INTO decisions (tenant, {_DECISIONS.names}, effect, at)
    SELECT :tenant, {", ".join(f"d.{name}" for name in ANSWER_COLUMNS)}, '{DecisionEffect.DECIDED}', :at
    FROM {_DECISIONS.sql}, ready
), decided AS (
    UPDATE tickets t SET status = 'decided', decision_id = d.decision_id, updated_at = :at
    FROM {_DECISIONS.sql}, ready WHERE t.tenant = :tenant AND t.id = d.ticket
    RETURNING t.id, t.kind, t.decision_id
), notice AS (
    INSERT INTO ticket_feed (tenant, ticket, kind, decision_id)
    SELECT :tenant, id, '{NoticeKind.DECIDED}', decision_id FROM decided WHERE kind NOT IN ({KINDS_OF_PROGRAMS})
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
{LOG} UNION ALL {MARK} UNION ALL {CALLS} UNION ALL {PROGRESS} UNION ALL
SELECT 'claim' AS part, head.first_seq, NULL::uuid, NULL, NULL,
    jsonb_build_object('next_seq', thread.next_message_seq, 'state', thread.state)::text,
    NULL, NULL, NULL::uuid, claimed.attempt, NULL, NULL::timestamptz
FROM claimed, head, thread
ORDER BY part, seq
""")


class DecidedAndClaimed(Struct, frozen=True):
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
    *,
    tickets: Sequence[Ticket],
    from_seq: int,
) -> DecidedAndClaimed | None:
    """Record decisions that take effect, append their events, and claim the run. Reads the thread's log from
    `from_seq` on, and the run's progress. `tickets` are the run's unsettled tickets with these decisions.

    Returns None, and writes nothing, if the run or one of the tickets has changed since it was read.
    """
    try:
        rows = await pool.fetch(
            *_DECIDE_AND_CLAIM(
                tenant=run.tenant,
                thread_id=run.thread_id,
                run_id=run.id,
                attempt=run.attempt,
                owner=owner,
                at=at,
                events=len(events),
                events_from=run.events_from or 0,
                from_seq=from_seq,
                tickets=[ticket for ticket, _ in answers],
                **_DECISIONS.values(answer_values(*answer) for answer in answers),
                **event_values([events]),
            )
        )
    except asyncpg.UniqueViolationError:
        # The decision's id was refused before, or another decision took effect.
        return None
    # In the columns of messages, like the rows that are read.
    row = next((row for row in rows if row["part"] == "claim"), None)
    if row is None:
        return None
    thread = parsed(row["content"])
    progress = await stored_progress([each for each in rows if each is not row], from_seq)
    claimed = ClaimedRun(
        record=replace(
            run, state=Running(owner), attempt=row["step_index"], dispatch_id=None, updated_at=at
        ),
        next_seq=thread["next_seq"],
        previous_state=run.status,
        thread_state=thread["state"] or {},
        progress=replace(progress, tickets=tickets),
    )
    return DecidedAndClaimed(claimed, row["seq"])
