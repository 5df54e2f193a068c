"""Loads what the execution of a claimed run needs, in one statement."""

from collections.abc import Sequence

from app.domain.claims.stored_progress import HistoryMark, StoredProgress
from app.domain.events.run_events import RUN_FINISH, RUN_START
from app.domain.events.step_events import STEP_END, STEP_START
from app.domain.json_values import parsed
from app.domain.runs.runs import RunRecord
from app.storage.codec import Row
from app.storage.postgres.database import RawPool
from app.storage.postgres.named_parameters import NamedSql
from app.storage.runs.tool_calls import call_of
from app.storage.threads.messages import HISTORY, bytes_of, decoded
from app.storage.tickets.tickets import (
    IS_UNSETTLED,
    TICKET_AS_JSON,
    TICKETS_AND_DECISIONS,
    ticket_of_json,
)

# Rows of several kinds in the columns of messages. The events are read backwards from the newest one. Each search
# ends within a step, so a run with many events loads as fast as one with few.
_EVENTS_OF_RUN = """SELECT event_type, step FROM events
    WHERE tenant = :tenant AND thread_id = :thread_id AND run_id = :run_id AND seq >= :events_from"""

LOG = f"""
SELECT 'message' AS part, history.* FROM ({HISTORY}) AS history WHERE seq >= :from_seq
"""
MARK = """
SELECT 'mark' AS part, (SELECT count(*) FROM rollbacks b WHERE b.tenant = :tenant AND b.thread_id = :thread_id),
    NULL::uuid, NULL, NULL, NULL, NULL, NULL, NULL::uuid, NULL::int, NULL, t.created_at
FROM threads t WHERE t.tenant = :tenant AND t.id = :thread_id
"""
CALLS = """
SELECT 'call' AS part, c.position, NULL::uuid, NULL, NULL, to_jsonb(c)::text, NULL, NULL, NULL::uuid, NULL::int,
    NULL, c.started_at
FROM tool_calls c WHERE c.tenant = :tenant AND c.run_id = :run_id
"""
_TICKETS = f"""
SELECT 'ticket' AS part, NULL::bigint, NULL::uuid, NULL, NULL, {TICKET_AS_JSON}::text, NULL, NULL, NULL::uuid,
    NULL::int, NULL, k.created_at
FROM {TICKETS_AND_DECISIONS} WHERE k.tenant = :tenant AND k.run_id = :run_id AND {IS_UNSETTLED}
"""
PROGRESS = f"""
SELECT 'progress' AS part, (newest.event_type <> '{RUN_FINISH}')::int, NULL::uuid, NULL, NULL, NULL, NULL, NULL,
    NULL::uuid, begun.step, NULL, NULL::timestamptz
FROM (SELECT 1) AS one LEFT JOIN LATERAL (
    {_EVENTS_OF_RUN} AND event_type IN ('{RUN_START}', '{RUN_FINISH}', '{STEP_START}', '{STEP_END}')
    ORDER BY seq DESC LIMIT 1
) AS newest ON true LEFT JOIN LATERAL (
    {_EVENTS_OF_RUN} AND event_type = '{STEP_START}' ORDER BY seq DESC LIMIT 1
) AS begun ON true
"""


def _wanted(condition: str, *parts: str) -> str:
    """The rows of these parts, if the condition holds."""
    return f"SELECT * FROM ({' UNION ALL '.join(parts)}) AS found WHERE {condition}"


_LOAD = NamedSql(f"""
{_wanted(":with_log", LOG)} UNION ALL {MARK} UNION ALL {_wanted(":with_progress", CALLS, _TICKETS, PROGRESS)}
ORDER BY part, seq
""")


async def load(
    pool: RawPool,
    run: RunRecord,
    *,
    with_log: bool = True,
    from_seq: int = 1,
    with_progress: bool = True,
) -> StoredProgress:
    """The run's progress, and the log of its thread from a message's number on, as far as they are wanted."""
    rows = await pool.fetch(
        *_LOAD(
            tenant=run.tenant,
            thread_id=run.thread_id,
            run_id=run.id,
            events_from=run.events_from or 0,
            with_log=with_log,
            with_progress=with_progress,
            from_seq=from_seq,
        )
    )
    return await stored_progress(rows, from_seq)


async def stored_progress(rows: Sequence[Row], from_seq: int) -> StoredProgress:
    """What these rows of the parts above say, in the order of their numbers."""
    by_part: dict[str, list[Row]] = {
        part: [] for part in ("call", "mark", "message", "progress", "ticket")
    }
    for row in rows:
        by_part[row["part"]].append(row)
    progress = by_part["progress"][0] if by_part["progress"] else None
    tickets = [ticket_of_json(parsed(row["content"])) for row in by_part["ticket"]]
    mark = by_part["mark"][0] if by_part["mark"] else None
    return StoredProgress(
        from_seq=from_seq,
        log=await decoded(by_part["message"]),
        log_bytes=list(map(bytes_of, by_part["message"])),
        mark=HistoryMark(None, 0) if mark is None else HistoryMark(mark["created_at"], mark["seq"]),
        calls=[(call_of(parsed(row["content"])), row["created_at"]) for row in by_part["call"]],
        is_open=progress is not None and bool(progress["seq"]),
        begun_step=0 if progress is None else progress["step_index"] or 0,
        tickets=sorted(tickets, key=lambda ticket: (ticket.created_at, ticket.id)),
    )
