"""The event log: numbered by the thread's head, appended, read back; never changed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Text, Uuid, cast, func, select
from sqlalchemy.dialects.postgresql import ARRAY

from app.domain.checkpoints import PendingEvent
from app.domain.events.command_events import RUN_CREATED
from app.domain.events.run_events import STEP_END, STEP_START, event_fields
from app.domain.ids import RunId, Tenant, ThreadId
from app.storage.codec import storable_json
from app.storage.postgres.database import Connection, RawPool, raw
from app.storage.tables import event_heads, events


@dataclass(frozen=True, slots=True)
class EventEntry:
    """An event, encoded, that has no number yet."""

    step: int | None
    event_type: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEvent:
    """An event of the log. `from_seq` is set when it stands for a stretch that has been merged."""

    seq: int
    from_seq: int | None
    run_id: RunId
    step: int | None
    ts: datetime
    event_type: str
    body: str


def entry(said: PendingEvent) -> EventEntry:
    return EventEntry(said.step, said.event.event_type, storable_json(event_fields(said.event)))


_LOG = """
WITH head AS (
    INSERT INTO event_heads AS h (tenant, thread_id, next_seq)
    VALUES ($1, $2, 1 + cardinality($4::uuid[]))
    ON CONFLICT (tenant, thread_id) DO UPDATE SET next_seq = h.next_seq + cardinality($4::uuid[])
    RETURNING h.next_seq - cardinality($4::uuid[]) AS seq
), event AS (
    INSERT INTO events (tenant, thread_id, seq, run_id, step, ts, event_type, body)
    SELECT $1, $2, head.seq + e.i - 1, e.run_id, e.step, $3, e.type, e.body
    FROM head, unnest($4::uuid[], $5::int[], $6::text[], $7::text[])
        WITH ORDINALITY AS e(run_id, step, type, body, i)
)
SELECT seq FROM head
"""


async def append_events(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    said: Sequence[tuple[RunId, EventEntry]],
    at: datetime,
) -> int:
    """Number events of a thread and log them; the first number. It takes the thread's head, the last lock,
    and holds it until the commit.

    Every command says something, so this is one statement, and the driver's.
    """
    first: int = await (await raw(connection)).fetchval(
        _LOG,
        tenant,
        thread_id,
        at,
        [run_id for run_id, _ in said],
        [one.step for _, one in said],
        [one.event_type for _, one in said],
        [one.body for _, one in said],
    )
    return first


async def next_seq(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> int:
    """The number that the thread's next event will get; 1 when it never had one."""
    statement = select(event_heads.c.next_seq).where(
        event_heads.c.tenant == tenant, event_heads.c.thread_id == thread_id
    )
    return (await connection.execute(statement)).scalar_one_or_none() or 1


MAX_PAGE_EVENTS = 250_000
"""Bytes of events that are read at once, or one event: what a reader that takes nothing is held in."""

_READ = """
SELECT coalesce(h.next_seq, 1) - 1 AS head, coalesce(h.pruned_to, 0) AS pruned_to, e.seq, e.from_seq,
    e.run_id, e.step, e.ts, e.event_type, e.body, e.is_cut
FROM (SELECT 1) AS one
LEFT JOIN event_heads h ON h.tenant = $1 AND h.thread_id = $2
LEFT JOIN LATERAL (
    SELECT *, bytes >= $6 AS is_cut
    FROM (
        SELECT *, sum(octet_length(body)) OVER (ORDER BY seq) AS bytes
        FROM (
            SELECT * FROM events
            WHERE tenant = $1 AND thread_id = $2 AND seq > $3 AND ($4::uuid IS NULL OR run_id = $4)
            ORDER BY seq LIMIT $5
        ) AS next_ones
    ) AS measured
    WHERE bytes - octet_length(body) < $6
) AS e ON true
ORDER BY e.seq
"""


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some events in order, and the last number given out when they were read."""

    events: tuple[LoggedEvent, ...]
    head: int
    pruned_to: int
    """Events up to here may have been removed, whosever they were."""
    is_full: bool
    """There may be more before the head."""


async def read_after(
    pool: RawPool,
    tenant: Tenant,
    thread_id: ThreadId,
    after: int,
    *,
    run_id: RunId | None = None,
    limit: int = 500,
) -> EventPage:
    """The next events of a thread, or of one run of it, and the head of the same instant."""
    rows = await pool.fetch(_READ, tenant, thread_id, after, run_id, limit, MAX_PAGE_EVENTS)
    found = tuple(
        LoggedEvent(
            seq=row["seq"],
            from_seq=row["from_seq"],
            run_id=RunId(row["run_id"]),
            step=row["step"],
            ts=row["ts"],
            event_type=row["event_type"],
            body=row["body"],
        )
        for row in rows
        if row["seq"] is not None
    )
    is_full = len(found) == limit or bool(rows[-1]["is_cut"])
    return EventPage(found, rows[0]["head"], rows[0]["pruned_to"], is_full)


_HAS_ITS_BEGINNING = """
SELECT EXISTS (
    SELECT FROM events
    WHERE tenant = $1 AND thread_id = $2 AND run_id = $3 AND seq <= $4 AND event_type = $5
)
"""


async def has_its_beginning(
    pool: RawPool, tenant: Tenant, thread_id: ThreadId, run_id: RunId, up_to: int
) -> bool:
    """Whether a run's first event is still there, at one of its events or before that."""
    found: bool = await pool.fetchval(
        _HAS_ITS_BEGINNING, tenant, thread_id, run_id, up_to, RUN_CREATED
    )
    return found


async def of_open_step(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, run_id: RunId, events_from: int
) -> list[tuple[str, dict[str, Any]]]:
    """Type and fields of what a run has said since it last began or completed a step."""
    mine = (
        (events.c.tenant == tenant)
        & (events.c.thread_id == thread_id)
        & (events.c.run_id == run_id)
    )
    border = (
        select(func.coalesce(func.max(events.c.seq), 0))
        .where(mine, events.c.seq >= events_from, events.c.event_type.in_((STEP_START, STEP_END)))
        .scalar_subquery()
    )
    statement = (
        select(events.c.event_type, events.c.body)
        .where(mine, events.c.seq > border)
        .order_by(events.c.seq)
    )
    rows = await connection.execute(statement)
    return [(row.event_type, json.loads(row.body)) for row in rows]


_LAST_BORDERS = """
SELECT max(seq) FILTER (WHERE event_type = 'run_start') AS started,
    max(seq) FILTER (WHERE event_type = 'run_finish') AS finished,
    max(step) FILTER (WHERE event_type = 'step_start') AS step
FROM events WHERE tenant = $1 AND thread_id = $2 AND run_id = $3 AND seq >= $4
"""


@dataclass(frozen=True, slots=True)
class StepProgress:
    """How far a run had come, by what it has said."""

    is_open: bool
    """A `run_start` without its `run_finish`."""
    begun_step: int
    """The newest step that was begun, 0 when none was."""


async def step_progress(
    pool: RawPool, tenant: Tenant, thread_id: ThreadId, run_id: RunId, events_from: int
) -> StepProgress:
    row = await pool.fetchrow(_LAST_BORDERS, tenant, thread_id, run_id, events_from)
    if row is None or row["started"] is None:
        return StepProgress(False, 0)
    return StepProgress(row["started"] > (row["finished"] or 0), row["step"] or 0)


async def heads_of(
    connection: Connection, threads: Sequence[tuple[Tenant, ThreadId]]
) -> dict[tuple[Tenant, ThreadId], int]:
    """The last number of each of these threads, for whoever may have missed a hint."""
    wanted = (
        func.unnest(
            cast([tenant for tenant, _ in threads], ARRAY(Text)),
            cast([thread for _, thread in threads], ARRAY(Uuid(as_uuid=False))),
        )
        .table_valued("tenant", "thread_id", name="wanted")
        .render_derived()
    )
    statement = select(event_heads.c.tenant, event_heads.c.thread_id, event_heads.c.next_seq).join(
        wanted,
        (event_heads.c.tenant == wanted.c.tenant) & (event_heads.c.thread_id == wanted.c.thread_id),
    )
    rows = await connection.execute(statement)
    return {(Tenant(tenant), ThreadId(thread)): seq - 1 for tenant, thread, seq in rows}
