"""Deliveries of runs and tasks, follow-ups and signal jobs, enqueued in the caller's transaction.

The worker that gets a delivery tries to claim its run or task, so a duplicate is harmless. The key of a delivery
contains the attempt: the queue keeps a key until the job is completed, and a later delivery must not be dropped
meanwhile.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from msgspec.structs import asdict
from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
from pgqueuer.adapters.persistence.qb import (
    QueryBuilderEnvironment,
    QueryQueueBuilder,
    QuerySchedulerBuilder,
)
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.domain.settings import DBSettings
from pgqueuer.ports.driver import Driver
from sqlalchemy import text

from app.domain.children.background_tasks import TaskKey
from app.domain.children.followups import (
    ABORT_REMOTE,
    CALL_RUN_END,
    AbortRemote,
    CallRunEnd,
    ChildFollowup,
    Followup,
    FollowupKind,
)
from app.domain.ids import RunId, TaskId, Tenant, ThreadId, TicketKey
from app.domain.signals import DeliverSignal, MatchWait, SignalJob
from app.storage.postgres.connect import RawConnection
from app.storage.postgres.database import Connection
from app.storage.runs.runs import RunKey

ENTRYPOINT = "run"
TASK_ENTRYPOINT = "task"
FOLLOWUP_ENTRYPOINT = "followup"
SIGNAL_ENTRYPOINT = "signal"
_DUE_AT = "due_at"
_CANCEL_PRIORITY = 1
_SETTINGS = DBSettings(db_schema="pgq")


def queue_queries(driver: Driver, kind: Callable[..., Queries] = Queries) -> Queries:
    """pgqueuer's statements on the schema `pgq`."""
    return kind(
        driver,
        QueryBuilderEnvironment(_SETTINGS),
        QueryQueueBuilder(_SETTINGS),
        QuerySchedulerBuilder(_SETTINGS),
    )


async def enqueue(connection: Connection, key: RunKey, *, is_cancel: bool = False) -> bool:
    """Enqueue a delivery of a run, visible after commit. False if it is in the queue already."""
    return await enqueue_on(connection.driver, key, is_cancel=is_cancel)


async def enqueue_on(connection: RawConnection, key: RunKey, *, is_cancel: bool = False) -> bool:
    """The same, in a transaction of the driver's connection.

    A delivery for a cancel request goes before all others. Its key differs from that of the run's other
    deliveries, because one of those may be stuck in the queue or in a frozen process.
    """
    if is_cancel:
        dedupe_key = f"{_dedupe_key(key)}:cancel"
        return await _enqueue(connection, key, dedupe_key, priority=_CANCEL_PRIORITY)
    return await _enqueue(connection, key, _dedupe_key(key))


async def enqueue_at(connection: Connection, key: RunKey, at: datetime) -> None:
    """Enqueue a delivery of a run for a later time, by the database's clock, which the claim uses too."""
    delay = await connection.execute(_DELAY_UNTIL, {"at": at})
    await _enqueue(
        *(connection.driver, key, _dedupe_key(key)),
        after=delay.scalar_one(),
        more={_DUE_AT: at.isoformat()},
    )


_DELAY_UNTIL = text("SELECT greatest(CAST(:at AS timestamptz) - now(), interval '0')")


async def _enqueue(
    connection: RawConnection,
    key: RunKey,
    dedupe_key: str,
    *,
    priority: int = 0,
    after: timedelta | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
) -> bool:
    queries = queue_queries(AsyncpgDriver(connection))
    [job] = await queries.enqueue(
        ENTRYPOINT,
        json.dumps({**asdict(key), **more}).encode(),
        priority=priority,
        execute_after=after,
        dedupe_key=dedupe_key,
        on_conflict="skip",
    )
    return job is not None


_DUE = """
SELECT min(execute_after) FROM pgq.pgqueuer
WHERE dedupe_key = :key AND status IN ('queued', 'picked')
"""


async def due_at(connection: Connection, key: RunKey) -> datetime | None:
    """The time of a run's next delivery; None if none is queued."""
    row = await connection.execute(text(_DUE), {"key": _dedupe_key(key)})
    due: datetime | None = row.scalar_one()
    return due


def _dedupe_key(key: RunKey) -> str:
    """With the tenant, because runs of two tenants may have the same id."""
    return f"{key.tenant}:{key.run_id}:{key.attempt}"


def delivered(payload: bytes | None) -> RunKey:
    """The run of a delivery."""
    body = json.loads(payload or b"{}")
    return RunKey(
        Tenant(body["tenant"]), ThreadId(body["thread_id"]), RunId(body["run_id"]), body["attempt"]
    )


def due_at_of(payload: bytes | None) -> datetime | None:
    """The time that a run's delivery was delayed to; None if it wasn't delayed."""
    due_at = json.loads(payload or b"{}").get(_DUE_AT)
    return None if due_at is None else datetime.fromisoformat(due_at)


async def enqueue_task(connection: Connection, key: TaskKey) -> bool:
    """Enqueue a delivery of a task, visible after commit. False if it is in the queue already."""
    queries = queue_queries(AsyncpgDriver(connection.driver))
    [job] = await queries.enqueue(
        TASK_ENTRYPOINT,
        json.dumps(asdict(key)).encode(),
        dedupe_key=f"{key.tenant}:{key.task_id}:{key.attempt}",
        on_conflict="skip",
    )
    return job is not None


async def enqueue_followup(
    connection: Connection, followup: Followup, *, is_found: bool = False
) -> bool:
    """Enqueue a follow-up, visible after commit. `is_found`: the sweeper found it due; queue it only once.

    False if it is in the queue already.
    """
    queries = queue_queries(AsyncpgDriver(connection.driver))
    body = asdict(followup)
    if not isinstance(followup, ChildFollowup):
        body["kind"] = followup.name
    [job] = await queries.enqueue(
        FOLLOWUP_ENTRYPOINT,
        json.dumps(body).encode(),
        dedupe_key=_dedupe_key_of_followup(followup, is_found),
        on_conflict="skip",
    )
    return job is not None


def _dedupe_key_of_followup(followup: Followup, is_found: bool) -> str | None:
    """Deletions of a child are deduplicated, because they may wait long.

    Other follow-ups are not: each may lead to a different result.
    """
    if is_found or followup.name == FollowupKind.DELETE:
        return f"{followup.name}:{followup.tenant}:{followup.about}"
    return None


def delivered_followup(payload: bytes | None) -> Followup:
    body = json.loads(payload or b"{}")
    if body["kind"] == ABORT_REMOTE:
        return AbortRemote(tenant=Tenant(body["tenant"]), run_id=RunId(body["run_id"]))
    if body["kind"] == CALL_RUN_END:
        return CallRunEnd(tenant=Tenant(body["tenant"]), run_id=RunId(body["run_id"]))
    return ChildFollowup(
        kind=FollowupKind(body["kind"]),
        tenant=Tenant(body["tenant"]),
        parent_run_id=RunId(body["parent_run_id"]),
        child_run_id=RunId(body["child_run_id"]),
    )


async def enqueue_signal_job(connection: Connection, job: SignalJob, *, after: float = 0.0) -> None:
    """Enqueue the delivery of a signal, or the match of a ticket with kept signals, visible after commit."""
    queries = queue_queries(AsyncpgDriver(connection.driver))
    await queries.enqueue(
        SIGNAL_ENTRYPOINT,
        json.dumps(asdict(job)).encode(),
        execute_after=timedelta(seconds=after),
    )


def delivered_signal_job(payload: bytes | None) -> SignalJob:
    body = json.loads(payload or b"{}")
    if "ticket" in body:
        return MatchWait(
            tenant=Tenant(body["tenant"]),
            run_id=RunId(body["run_id"]),
            ticket=TicketKey(body["ticket"]),
        )
    return DeliverSignal(tenant=Tenant(body["tenant"]), id=body["id"])


def delivered_task(payload: bytes | None) -> TaskKey:
    """The task of a delivery."""
    body = json.loads(payload or b"{}")
    return TaskKey(Tenant(body["tenant"]), TaskId(body["task_id"]), body["attempt"])


_DELETE_LOG = text("""
WITH old_log AS (
    SELECT id FROM pgq.pgqueuer_log WHERE created < now() - CAST(:age AS interval)
    ORDER BY created LIMIT :limit
), log AS (
    DELETE FROM pgq.pgqueuer_log l USING old_log WHERE l.id = old_log.id RETURNING 1
), oldest_statistics AS (
    SELECT id, created FROM pgq.pgqueuer_statistics ORDER BY id LIMIT :limit
), statistics AS (
    DELETE FROM pgq.pgqueuer_statistics s USING oldest_statistics o
    WHERE s.id = o.id AND o.created < now() - CAST(:age AS interval)
    RETURNING 1
)
SELECT (SELECT count(*) FROM log) + (SELECT count(*) FROM statistics)
""")


async def delete_log(connection: Connection, older_than: float, limit: int) -> int:
    """Delete old rows of the queue's log and statistics."""
    age = {"age": timedelta(seconds=older_than), "limit": limit}
    return int((await connection.execute(_DELETE_LOG, age)).scalar_one())
