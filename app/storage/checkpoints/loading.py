"""Loads what the execution of a claimed run needs, in one statement."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.domain.events.run_events import RUN_FINISH, RUN_START
from app.domain.events.step_events import STEP_END, STEP_START
from app.domain.runs.runs import RunRecord
from app.domain.threads.messages import LoggedMessage
from app.domain.tickets.tickets import Ticket
from app.domain.tools.tool_calls import CallState
from app.storage.codec import Row
from app.storage.postgres.database import RawPool
from app.storage.postgres.named_parameters import NamedSql
from app.storage.runs.tool_calls import call_of
from app.storage.threads.messages import HISTORY, bytes_of, decoded
from app.storage.tickets.tickets import TICKET_AS_JSON, ticket_of_json

_EVENTS_OF_RUN = """SELECT event_type, step FROM events
    WHERE :with_progress AND tenant = :tenant AND thread_id = :thread_id AND run_id = :run_id AND seq >= :events_from"""

# Rows of several kinds in the columns of messages. The events are read backwards from the newest one. Each search
# ends within a step, so a run with many events loads as fast as one with few.
_LOAD = NamedSql(f"""
SELECT 'message' AS part, history.* FROM ({HISTORY}) AS history WHERE :with_log AND seq >= :from_seq
UNION ALL
SELECT 'mark', (SELECT count(*) FROM rollbacks b WHERE b.tenant = :tenant AND b.thread_id = :thread_id),
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, t.created_at
FROM threads t WHERE t.tenant = :tenant AND t.id = :thread_id
UNION ALL
SELECT 'call', c.position, NULL, NULL, NULL, to_jsonb(c)::text, NULL, NULL, NULL, NULL, NULL, c.started_at
FROM tool_calls c WHERE :with_progress AND c.tenant = :tenant AND c.run_id = :run_id
UNION ALL
SELECT 'ticket', NULL, NULL, NULL, NULL, {TICKET_AS_JSON}::text, NULL, NULL, NULL, NULL, NULL, k.created_at
FROM tickets k LEFT JOIN decisions d
    ON d.tenant = k.tenant AND d.ticket = k.id AND d.decision_id = k.decision_id
WHERE :with_progress AND k.tenant = :tenant AND k.run_id = :run_id
    AND (k.status = 'open' OR k.status IN ('decided', 'expired') AND k.applied_at IS NULL)
UNION ALL
SELECT 'progress', (newest.event_type <> '{RUN_FINISH}')::int, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    begun.step, NULL, NULL
FROM (SELECT 1) AS one LEFT JOIN LATERAL (
    {_EVENTS_OF_RUN} AND event_type IN ('{RUN_START}', '{RUN_FINISH}', '{STEP_START}', '{STEP_END}')
    ORDER BY seq DESC LIMIT 1
) AS newest ON true LEFT JOIN LATERAL (
    {_EVENTS_OF_RUN} AND event_type = '{STEP_START}' ORDER BY seq DESC LIMIT 1
) AS begun ON true
ORDER BY part, seq
""")


@dataclass(frozen=True, slots=True)
class HistoryMark:
    """Changes when messages that were read before no longer are the thread's log: after a rollback, or in a
    new thread with the same id."""

    thread_created_at: datetime | None
    rollbacks: int


@dataclass(frozen=True, slots=True)
class StoredProgress:
    """What earlier activations of a run have stored."""

    log: Sequence[LoggedMessage]
    """The messages from the number on that the caller named."""
    log_bytes: Sequence[int]
    mark: HistoryMark
    calls: Sequence[tuple[CallState, datetime | None]]
    """The calls of the open step in order, each with the time at which it started."""
    is_open: bool
    """The log of events has a `run_start` without its `run_finish`."""
    begun_step: int
    """The last step that was started; 0 if none was."""
    tickets: Sequence[Ticket] = ()
    """The run's tickets that are open, or decided and not applied, oldest first."""


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
    by_part: dict[str, list[Row]] = {
        part: [] for part in ("call", "mark", "message", "progress", "ticket")
    }
    for row in rows:
        by_part[row["part"]].append(row)
    [progress] = by_part["progress"]
    tickets = [ticket_of_json(json.loads(row["content"])) for row in by_part["ticket"]]
    mark = by_part["mark"][0] if by_part["mark"] else None
    return StoredProgress(
        log=await decoded(by_part["message"]),
        log_bytes=list(map(bytes_of, by_part["message"])),
        mark=HistoryMark(None, 0) if mark is None else HistoryMark(mark["created_at"], mark["seq"]),
        calls=[(call_of(json.loads(row["content"])), row["created_at"]) for row in by_part["call"]],
        is_open=bool(progress["seq"]),
        begun_step=progress["step_index"] or 0,
        tickets=sorted(tickets, key=lambda ticket: (ticket.created_at, ticket.id)),
    )
