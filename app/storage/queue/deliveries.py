"""Deliveries: queued wake-ups of runs and of tasks, and errands between runs, enqueued inside the
caller's transaction.

A delivery says that somebody should look at a run or a task; whoever gets it claims that or forgets it,
so a duplicate is harmless. Its key is `run:attempt`, never the run alone: the queue keeps a key until a
delivery's completion is written, and a later wake-up must not drown in that gap.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from types import MappingProxyType

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
from app.storage.postgres.database import Connection, raw
from app.storage.runs.runs import RunKey

ENTRYPOINT = "run"
TASK_ENTRYPOINT = "task"
FOLLOWUP_ENTRYPOINT = "errand"
SIGNAL_ENTRYPOINT = "signal"
_DUE_AT = "due_at"
_CANCEL_PRIORITY = 1
_SETTINGS = DBSettings(db_schema="pgq")


def queue_queries(driver: Driver, kind: Callable[..., Queries] = Queries) -> Queries:
    """The queue's statements over its own schema."""
    return kind(
        driver,
        QueryBuilderEnvironment(_SETTINGS),
        QueryQueueBuilder(_SETTINGS),
        QuerySchedulerBuilder(_SETTINGS),
    )


async def enqueue(connection: Connection, key: RunKey, *, is_cancel: bool = False) -> None:
    """Have some worker look at a run once this transaction commits."""
    await enqueue_on(await raw(connection), key, is_cancel=is_cancel)


async def enqueue_on(connection: RawConnection, key: RunKey, *, is_cancel: bool = False) -> None:
    """The same, in a transaction of the driver's connection.

    A delivery for a cancel request goes before all others. It has a key of its own, because another
    delivery of the run may be stuck in the queue or in a process that is frozen.
    """
    if is_cancel:
        await _enqueue(connection, key, f"{_dedupe_key(key)}:cancel", priority=_CANCEL_PRIORITY)
    else:
        await _enqueue(connection, key, _dedupe_key(key))


async def enqueue_at(connection: Connection, key: RunKey, at: datetime) -> None:
    """Have some worker look at a run at that moment, by the database's clock, which also judges the claim."""
    left = await connection.execute(_TIME_LEFT, {"at": at})
    await _enqueue(
        *(await raw(connection), key, _dedupe_key(key)),
        after=left.scalar_one(),
        more={_DUE_AT: at.isoformat()},
    )


_TIME_LEFT = text("SELECT greatest(CAST(:at AS timestamptz) - now(), interval '0')")


async def _enqueue(
    connection: RawConnection,
    key: RunKey,
    dedupe_key: str,
    *,
    priority: int = 0,
    after: timedelta | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
) -> None:
    queries = queue_queries(AsyncpgDriver(connection))
    await queries.enqueue(
        ENTRYPOINT,
        json.dumps({**asdict(key), **more}).encode(),
        priority=priority,
        execute_after=after,
        dedupe_key=dedupe_key,
        on_conflict="skip",
    )


_DUE = """
SELECT min(execute_after) FROM pgq.pgqueuer
WHERE dedupe_key = :key AND status IN ('queued', 'picked')
"""


async def due_at(connection: Connection, key: RunKey) -> datetime | None:
    """When a worker is to look at a run; None when no delivery says so."""
    row = await connection.execute(text(_DUE), {"key": _dedupe_key(key)})
    due: datetime | None = row.scalar_one()
    return due


def _dedupe_key(key: RunKey) -> str:
    """With its tenant: another one's run may have the same id."""
    return f"{key.tenant}:{key.run_id}:{key.attempt}"


def delivered(payload: bytes | None) -> RunKey:
    """The run that a delivery is about."""
    body = json.loads(payload or b"{}")
    return RunKey(
        Tenant(body["tenant"]), ThreadId(body["thread_id"]), RunId(body["run_id"]), body["attempt"]
    )


def meant_for(payload: bytes | None) -> datetime | None:
    """The moment that a run's delivery was put off to; None when it was due at once."""
    due_at = json.loads(payload or b"{}").get(_DUE_AT)
    return None if due_at is None else datetime.fromisoformat(due_at)


async def enqueue_task(connection: Connection, key: TaskKey) -> None:
    """Have some worker look at a task once this transaction commits."""
    queries = queue_queries(AsyncpgDriver(await raw(connection)))
    await queries.enqueue(
        TASK_ENTRYPOINT,
        json.dumps(asdict(key)).encode(),
        dedupe_key=f"{key.tenant}:{key.task_id}:{key.attempt}",
        on_conflict="skip",
    )


async def enqueue_followup(
    connection: Connection, followup: Followup, *, is_found: bool = False
) -> None:
    """Have some process carry out an errand once this transaction commits; one that was found undone
    needn't be queued more than once."""
    queries = queue_queries(AsyncpgDriver(await raw(connection)))
    body = asdict(followup)
    if not isinstance(followup, ChildFollowup):
        body["kind"] = followup.name
    await queries.enqueue(
        FOLLOWUP_ENTRYPOINT,
        json.dumps(body).encode(),
        dedupe_key=_dedupe_key_of_errand(followup, is_found),
        on_conflict="skip",
    )


def _dedupe_key_of_errand(followup: Followup, is_found: bool) -> str | None:
    """To forget a child may take until people have answered: who is about to will do. Of the rest each is
    about what has just been committed, and may come to another end than the one before."""
    if is_found or followup.name == FollowupKind.FORGET:
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
    """Have some process complete a signal, or match a ticket with kept ones, once this commits."""
    queries = queue_queries(AsyncpgDriver(await raw(connection)))
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
    """The task that a delivery is about."""
    body = json.loads(payload or b"{}")
    return TaskKey(Tenant(body["tenant"]), TaskId(body["task_id"]), body["attempt"])


_FORGET_LOG = text("""
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


async def forget_log(connection: Connection, older_than: float, limit: int) -> int:
    """Remove what the queue has noted of deliveries that are long gone."""
    age = {"age": timedelta(seconds=older_than), "limit": limit}
    return int((await connection.execute(_FORGET_LOG, age)).scalar_one())
