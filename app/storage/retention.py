"""Retention jobs that read finished runs of all tenants in order and merge or delete their rows.

One process at a time executes a job, in short transactions that lock no rows of unfinished runs. Each job stores
the last run that it has handled, and continues behind it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from sqlalchemy import delete, func, literal, select, tuple_
from sqlalchemy.dialects.postgresql import insert

from app.domain.events.agent_events import DELTA_EVENTS
from app.domain.events.delta_merging import LoggedDelta, merge_logged_deltas
from app.domain.events.run_events import RUN_FINISH
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.json_values import compact, parsed
from app.domain.runs.terminations import SUSPENDED
from app.domain.threads.inputs import InputStatus
from app.storage.codec import storable_json
from app.storage.postgres.database import Connection
from app.storage.postgres.named_parameters import LONG_TEXT, NamedSql, Rows
from app.storage.tables import event_heads, events, inputs, retention, runs, tasks
from app.storage.tickets.audit import AUDITED_EVENTS

DELTAS_PER_BATCH = 5_000
_JOB_LOCKS = 0x4B656570  # "Keep": the first half of each job's advisory lock


async def try_lock(connection: Connection, job: str) -> bool:
    """Try to take a job's lock until commit, so that one process executes it at a time."""
    lock = func.pg_try_advisory_xact_lock(literal(_JOB_LOCKS), func.hashtext(job))
    return bool((await connection.execute(select(lock))).scalar_one())


class FinishedRun(Struct, frozen=True, kw_only=True):
    """A run that is done, with the first and last number of its events."""

    tenant: Tenant
    thread_id: ThreadId
    id: RunId
    finished_at: datetime
    events_from: int
    events_to: int


_SUSPENDED_FINISH = f'%"termination":{compact(dict(SUSPENDED))}%'
_is_of_run = (
    (events.c.tenant == runs.c.tenant)
    & (events.c.thread_id == runs.c.thread_id)
    & (events.c.run_id == runs.c.id)
)
# The run's last `run_finish`, or else the end of the log.
_events_to = func.coalesce(
    select(events.c.seq)
    .where(
        _is_of_run,
        events.c.seq >= runs.c.events_from,
        events.c.event_type == RUN_FINISH,
        events.c.body.not_like(_SUSPENDED_FINISH),
    )
    .order_by(events.c.seq)
    .limit(1)
    .scalar_subquery(),
    select(event_heads.c.next_seq - 1)
    .where(event_heads.c.tenant == runs.c.tenant, event_heads.c.thread_id == runs.c.thread_id)
    .scalar_subquery(),
    0,
)


async def next_finished(
    connection: Connection, job: str, *, older_than: float, limit: int
) -> list[FinishedRun]:
    """The next runs of a job that ended at least `older_than` ago, in the order of their ends."""
    cursor_statement = (
        select(retention.c.finished_at, retention.c.tenant, retention.c.run_id)
        .where(retention.c.job == job)
        .with_for_update()
    )
    cursor = (await connection.execute(cursor_statement)).one_or_none()
    statement = (
        select(
            runs.c.tenant,
            runs.c.thread_id,
            runs.c.id,
            runs.c.finished_at,
            runs.c.events_from,
            _events_to.label("events_to"),
        )
        .where(
            runs.c.status == "done",
            runs.c.finished_at < func.now() - timedelta(seconds=older_than),
        )
        .order_by(runs.c.finished_at, runs.c.tenant, runs.c.id)
        .limit(limit)
    )
    if cursor is not None:
        after = (cursor.finished_at, cursor.tenant, cursor.run_id)
        order = tuple_(runs.c.finished_at, runs.c.tenant, runs.c.id)
        statement = statement.where(order > after)
    rows = await connection.execute(statement)
    return [
        FinishedRun(
            tenant=Tenant(row.tenant),
            thread_id=ThreadId(row.thread_id),
            id=RunId(row.id),
            finished_at=row.finished_at,
            events_from=row.events_from,
            events_to=row.events_to,
        )
        for row in rows
    ]


async def save_cursor(connection: Connection, job: str, run: FinishedRun) -> None:
    """Let the job continue behind this run the next time."""
    cursor = {"finished_at": run.finished_at, "tenant": run.tenant, "run_id": run.id}
    statement = insert(retention).values(job=job, **cursor)
    await connection.execute(
        statement.on_conflict_do_update(index_elements=["job"], set_=cursor),
    )


# --- events ---------------------------------------------------------------------------------------

_MERGED = Rows("j", {"from_seq": "bigint", "seq": "bigint", "body": LONG_TEXT})
_DELETE_MERGED = NamedSql(f"""
DELETE FROM events e USING {_MERGED.sql}
WHERE e.tenant = :tenant AND e.thread_id = :thread_id AND e.seq >= j.from_seq AND e.seq < j.seq
""")
_UPDATE_MERGED = NamedSql(f"""
UPDATE events e SET from_seq = j.from_seq, body = j.body FROM {_MERGED.sql}
WHERE e.tenant = :tenant AND e.thread_id = :thread_id AND e.seq = j.seq
""")


async def merge_deltas(connection: Connection, run: FinishedRun) -> int:
    """Merge the text deltas of a run. Returns the number of rows saved."""
    saved, after = 0, run.events_from - 1
    while True:
        deltas = await _deltas(connection, run, after)
        saved += await _replace(connection, run, merge_logged_deltas(deltas))
        if len(deltas) < DELTAS_PER_BATCH:
            return saved
        after = deltas[-1].seq


async def _deltas(connection: Connection, run: FinishedRun, after: int) -> list[LoggedDelta]:
    statement = (
        select(events.c.seq, events.c.from_seq, events.c.step, events.c.event_type, events.c.body)
        .where(
            events.c.tenant == run.tenant,
            events.c.thread_id == run.thread_id,
            events.c.run_id == run.id,
            events.c.seq > after,
            events.c.seq <= run.events_to,
            events.c.event_type.in_(sorted(DELTA_EVENTS)),
        )
        .order_by(events.c.seq)
        .limit(DELTAS_PER_BATCH)
        # A transaction that deletes the thread has locked them; skip them instead of waiting.
        .with_for_update(skip_locked=True)
    )
    return [
        LoggedDelta(
            from_seq=row.from_seq or row.seq,
            seq=row.seq,
            step=row.step,
            event_type=row.event_type,
            fields=parsed(row.body),
        )
        for row in await connection.execute(statement)
    ]


async def _replace(connection: Connection, run: FinishedRun, merged: Sequence[LoggedDelta]) -> int:
    if not merged:
        return 0
    driver = connection.driver
    rows = _MERGED.values(
        {"from_seq": one.from_seq, "seq": one.seq, "body": storable_json(one.fields)}
        for one in merged
    )
    values = {"tenant": run.tenant, "thread_id": run.thread_id, **rows}
    status = await driver.execute(*_DELETE_MERGED(**values))
    await driver.execute(*_UPDATE_MERGED(**values))
    return int(status.rpartition(" ")[2])


async def prune_events(connection: Connection, finished: Sequence[FinishedRun]) -> int:
    """Delete the events of runs, except the last one and audited ones. Returns the number of rows."""
    removed = 0
    for run in finished:
        statement = delete(events).where(
            events.c.tenant == run.tenant,
            events.c.thread_id == run.thread_id,
            events.c.run_id == run.id,
            events.c.seq >= run.events_from,
            events.c.seq < run.events_to,
            events.c.event_type.not_in(AUDITED_EVENTS),
        )
        removed += (await connection.execute(statement)).rowcount
    if finished:
        await _record_pruned(connection, finished)
    return removed


_RECORD_PRUNED = """
WITH pruned AS (
    SELECT tenant, thread_id, max(seq) AS seq
    FROM unnest($1::text[], $2::uuid[], $3::bigint[]) AS p(tenant, thread_id, seq)
    GROUP BY tenant, thread_id
), head AS (
    SELECT h.tenant, h.thread_id, p.seq FROM pruned p
    JOIN event_heads h ON h.tenant = p.tenant AND h.thread_id = p.thread_id
    ORDER BY h.tenant, h.thread_id
    FOR NO KEY UPDATE OF h
)
UPDATE event_heads h SET pruned_to = greatest(coalesce(h.pruned_to, 0), head.seq)
FROM head WHERE h.tenant = head.tenant AND h.thread_id = head.thread_id
"""


async def _record_pruned(connection: Connection, finished: Sequence[FinishedRun]) -> None:
    """Record in the event heads what was deleted. The heads are the last locks, taken in order of thread."""
    driver = connection.driver
    await driver.execute(
        _RECORD_PRUNED,
        [run.tenant for run in finished],
        [run.thread_id for run in finished],
        [run.events_to - 1 for run in finished],
    )


# --- tasks and inputs -----------------------------------------------------------------------------


async def delete_tasks(connection: Connection, finished: Iterable[FinishedRun]) -> int:
    """Delete the tasks of finished runs. Their results are in the log."""
    keys = [(run.tenant, run.id) for run in finished]
    statement = delete(tasks).where(tuple_(tasks.c.tenant, tasks.c.run_id).in_(keys))
    return (await connection.execute(statement)).rowcount


async def delete_inputs(connection: Connection, finished: Iterable[FinishedRun]) -> int:
    """Delete consumed and retracted inputs of finished runs. Consumed messages are in the log."""
    keys = [(run.tenant, run.id) for run in finished]
    statement = delete(inputs).where(
        tuple_(inputs.c.tenant, inputs.c.run_id).in_(keys),
        inputs.c.status != InputStatus.PENDING.value,
    )
    return (await connection.execute(statement)).rowcount
