"""The event log: numbered by the thread's event head, appended and read."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import Text, Uuid, cast, func, select
from sqlalchemy.dialects.postgresql import ARRAY

from app.clock import yield_to_loop
from app.domain.checkpoints import PendingEvent
from app.domain.events.agent_events import event_fields
from app.domain.events.partial_message import EVENTS_OF_PARTIAL_MESSAGES
from app.domain.events.run_events import RUN_CREATED
from app.domain.events.step_events import STEP_END, STEP_START
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.json_values import parsed
from app.domain.slices import Slice
from app.storage.codec import Row, storable_json
from app.storage.postgres.database import Connection, RawPool
from app.storage.postgres.named_parameters import LONG_TEXT, NamedSql, Rows
from app.storage.tables import event_heads, events

_DECODED_AT_ONCE = 200
"""Events that are decoded before the event loop gets control."""


class EventEntry(Struct, frozen=True):
    """An encoded event without a number."""

    step: int | None
    event_type: str
    body: str


class LoggedEvent(Struct, frozen=True, kw_only=True):
    """An event of the log. `from_seq` is set if the events from there on were merged into it."""

    seq: int
    from_seq: int | None
    run_id: RunId
    step: int | None
    ts: datetime
    event_type: str
    body: str


def entry(pending: PendingEvent) -> EventEntry:
    event = pending.event
    return EventEntry(pending.step, event.event_type, storable_json(event_fields(event)))


_EVENT = {"run_id": "uuid", "step": "int", "event_type": "text", "body": LONG_TEXT}
_EVENTS = Rows("e", _EVENT, numbered="i")
_APPEND = NamedSql(f"""
WITH head AS (
    INSERT INTO event_heads AS h (tenant, thread_id, next_seq)
    VALUES (:tenant, :thread_id, 1 + :events::int)
    ON CONFLICT (tenant, thread_id) DO UPDATE SET next_seq = h.next_seq + :events::int
    RETURNING h.next_seq - :events::int AS seq
), event AS (
    INSERT INTO events (tenant, thread_id, seq, {", ".join(_EVENT)}, ts)
    SELECT :tenant, :thread_id, head.seq + e.i - 1, {", ".join(f"e.{name}" for name in _EVENT)}, :at
    FROM head, {_EVENTS.sql}
)
SELECT seq FROM head
""")


async def append_events(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    entries: Sequence[tuple[RunId, EventEntry]],
    at: datetime,
) -> int:
    """Number and append events of a thread. Returns the first number.

    Locks the thread's event head, the last lock, until commit. One driver statement, because every command
    uses it.
    """
    first: int = await connection.driver.fetchval(
        *_APPEND(
            tenant=tenant,
            thread_id=thread_id,
            at=at,
            events=len(entries),
            **_EVENTS.values(
                {
                    "run_id": run_id,
                    "step": one.step,
                    "event_type": one.event_type,
                    "body": one.body,
                }
                for run_id, one in entries
            ),
        )
    )
    return first


async def next_seq(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> int:
    """The number of the thread's next event; 1 if it never had one."""
    statement = select(event_heads.c.next_seq).where(
        event_heads.c.tenant == tenant, event_heads.c.thread_id == thread_id
    )
    return (await connection.execute(statement)).scalar_one_or_none() or 1


MAX_PAGE_BYTES = 250_000
"""Bytes of events in a page; a single event may be larger. A slow reader holds one page in memory."""

_READ = NamedSql("""
SELECT coalesce(h.next_seq, 1) - 1 AS head, coalesce(h.pruned_to, 0) AS pruned_to, e.seq, e.from_seq,
    e.run_id, e.step, e.ts, e.event_type, e.body, e.is_cut
FROM (SELECT 1) AS one
LEFT JOIN event_heads h ON h.tenant = :tenant AND h.thread_id = :thread_id
LEFT JOIN LATERAL (
    SELECT *, bytes >= :max_bytes AS is_cut
    FROM (
        SELECT *, sum(octet_length(body)) OVER (ORDER BY seq) AS bytes
        FROM (
            SELECT * FROM events
            WHERE tenant = :tenant AND thread_id = :thread_id AND seq > :after AND (:run_id::uuid IS NULL OR run_id = :run_id)
                AND (:only::text[] IS NULL OR event_type = ANY(:only)) AND (:without::text[] IS NULL OR event_type <> ALL(:without))
            ORDER BY seq LIMIT :limit
        ) AS next_ones
    ) AS measured
    WHERE bytes - octet_length(body) < :max_bytes
) AS e ON true
ORDER BY e.seq
""")


class EventPage(Struct, frozen=True):
    """Some events in order, and the last number of the thread when they were read."""

    events: tuple[LoggedEvent, ...]
    head: int
    pruned_to: int
    """Retention may have removed events up to this number."""
    is_full: bool
    """There may be more events up to `head`."""


async def read_after(
    pool: RawPool,
    tenant: Tenant,
    thread_id: ThreadId,
    after: int,
    *,
    run_id: RunId | None = None,
    limit: int = 500,
    only: Iterable[str] | None = None,
    without: Iterable[str] = (),
) -> EventPage:
    """The next events of a thread, or of one of its runs, with the thread's head in the same snapshot.

    `only` and `without` name the types that are read, and those that aren't.
    """
    rows = await pool.fetch(
        *_READ(
            tenant=tenant,
            thread_id=thread_id,
            after=after,
            run_id=run_id,
            limit=limit,
            max_bytes=MAX_PAGE_BYTES,
            only=None if only is None else sorted(only),
            without=sorted(without) or None,
        )
    )
    found = tuple(_event_of(row) for row in rows if row["seq"] is not None)
    is_full = len(found) == limit or bool(rows[-1]["is_cut"])
    return EventPage(found, rows[0]["head"], rows[0]["pruned_to"], is_full)


def _event_of(row: Row) -> LoggedEvent:
    return LoggedEvent(
        seq=row["seq"],
        from_seq=row["from_seq"],
        run_id=RunId(row["run_id"]),
        step=row["step"],
        ts=row["ts"],
        event_type=row["event_type"],
        body=row["body"],
    )


_GET = NamedSql("""
SELECT seq, from_seq, run_id, step, ts, event_type, body FROM events
WHERE tenant = :tenant AND thread_id = :thread_id AND seq >= :seq AND coalesce(from_seq, seq) <= :seq AND run_id = :run_id
ORDER BY seq LIMIT 1
""")


async def event_at(
    pool: RawPool, tenant: Tenant, thread_id: ThreadId, run_id: RunId, seq: int
) -> LoggedEvent | None:
    """The run's event with this number, or the one that it was merged into."""
    row = await pool.fetchrow(*_GET(tenant=tenant, thread_id=thread_id, run_id=run_id, seq=seq))
    return None if row is None else _event_of(row)


_HAS_RUN_CREATED = NamedSql("""
SELECT EXISTS (
    SELECT FROM events
    WHERE tenant = :tenant AND thread_id = :thread_id AND run_id = :run_id AND seq <= :up_to AND event_type = :event_type
)
""")


async def has_run_created(
    pool: RawPool, tenant: Tenant, thread_id: ThreadId, run_id: RunId, up_to: int
) -> bool:
    """Whether the run's first event is still in the log, at or before `up_to`."""
    found: bool = await pool.fetchval(
        *_HAS_RUN_CREATED(
            tenant=tenant,
            thread_id=thread_id,
            run_id=run_id,
            up_to=up_to,
            event_type=RUN_CREATED,
        )
    )
    return found


async def of_open_step(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, run_id: RunId, events_from: int
) -> list[tuple[str, dict[str, Any]]]:
    """Type and fields of the events of a run's open message: those since the last start or end of a step."""
    of_run = (
        (events.c.tenant == tenant)
        & (events.c.thread_id == thread_id)
        & (events.c.run_id == run_id)
    )
    step_border = (
        select(func.coalesce(func.max(events.c.seq), 0))
        .where(of_run, events.c.seq >= events_from, events.c.event_type.in_((STEP_START, STEP_END)))
        .scalar_subquery()
    )
    statement = (
        select(events.c.event_type, events.c.body)
        .where(
            of_run, events.c.seq > step_border, events.c.event_type.in_(EVENTS_OF_PARTIAL_MESSAGES)
        )
        .order_by(events.c.seq)
    )
    found: list[tuple[str, dict[str, Any]]] = []
    for row in (await connection.execute(statement)).all():
        found.append((row["event_type"], parsed(row["body"])))
        if len(found) % _DECODED_AT_ONCE == 0:
            await yield_to_loop()
    return found


_ACTIVITY_EVENTS = NamedSql("""
WITH shown AS MATERIALIZED (
    SELECT seq, event_type, body, octet_length(body) AS bytes, fields ->> 'message_id' AS message_id,
        fields ->> 'activity_type' AS activity_type,
        CASE jsonb_typeof(fields -> 'patch')
            WHEN 'array' THEN greatest(jsonb_array_length(fields -> 'patch'), 1) ELSE 1 END AS changes
    FROM (
        SELECT seq, event_type, body, body::jsonb AS fields
        FROM events WHERE tenant = :tenant AND thread_id = :thread_id AND run_id = :run_id AND seq >= :events_from
            AND event_type IN ('activity_snapshot', 'activity_delta') OFFSET 0
    ) AS decoded
), newest AS (
    SELECT message_id, activity_type, min(seq) AS first_seq,
        max(seq) FILTER (WHERE event_type = 'activity_snapshot') AS seq
    FROM shown GROUP BY message_id, activity_type
), sized AS (
    SELECT message_id, activity_type, newest.first_seq, newest.seq, max(shown.seq) AS last_seq,
        sum(shown.bytes) AS bytes, sum(shown.changes) AS changes
    FROM shown JOIN newest USING (message_id, activity_type) WHERE shown.seq >= newest.seq
    GROUP BY message_id, activity_type, newest.first_seq, newest.seq
), counted AS (
    SELECT *, sum(bytes) OVER latest AS all_bytes, sum(changes) OVER latest AS all_changes
    FROM sized WHERE bytes <= :max_bytes AND changes <= :max_changes WINDOW latest AS (ORDER BY last_seq DESC)
), fitting AS (
    SELECT * FROM counted WHERE all_bytes <= :max_bytes AND all_changes <= :max_changes
)
SELECT shown.event_type, shown.body,
    (SELECT count(*) FROM sized) > (SELECT count(*) FROM fitting) AS has_more
FROM (SELECT true) AS one LEFT JOIN (
    fitting JOIN shown USING (message_id, activity_type)
) ON shown.seq >= fitting.seq ORDER BY fitting.first_seq, shown.seq
""")


async def activity_events(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    run_id: RunId,
    events_from: int,
    *,
    max_bytes: int,
    max_changes: int,
) -> Slice[tuple[str, dict[str, Any]]]:
    """Of each activity of a run, its newest snapshot and the deltas after it.

    Together the events have at most `max_bytes` and `max_changes`: a snapshot is one, and so is each
    operation of a patch. Activities that don't fit are left out whole, the longest unchanged first.
    """
    rows = await connection.driver.fetch(
        *_ACTIVITY_EVENTS(
            tenant=tenant,
            thread_id=thread_id,
            run_id=run_id,
            events_from=events_from,
            max_bytes=max_bytes,
            max_changes=max_changes,
        )
    )
    found = tuple((row["event_type"], parsed(row["body"])) for row in rows if row["event_type"])
    return Slice(found, rows[0]["has_more"])


async def heads_of(
    connection: Connection, threads: Sequence[tuple[Tenant, ThreadId]]
) -> dict[tuple[Tenant, ThreadId], int]:
    """The last event number of each of these threads, for readers that may have missed a notification."""
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
