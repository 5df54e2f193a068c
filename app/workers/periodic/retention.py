"""Retention: jobs that merge, sum or delete old rows. Every process runs them; a lock per job admits one at a time.

A job works in short transactions, as long as there is more to do. Each commits its progress, so the next
process continues there, also after a crash.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import structlog
from msgspec import Struct

from app import telemetry
from app.storage import idempotency, retention, workers
from app.storage.files import blobs, files
from app.storage.memories import memories
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Connection, Database
from app.storage.queue import deliveries
from app.storage.retention import FinishedRun
from app.storage.tickets import feed, signals
from app.storage.usage import ledger, sums
from app.workers.periodic.loop import PeriodicJob, wait_for_next

RUNS_PER_BATCH = 20
ROWS_PER_BATCH = 2_000
PAUSE_PER_WORK = 4.0
"""Seconds of pause for each second of work."""
DEAD_WORKER_AGE_SECONDS = 3_600.0
UNUSED_BYTES_AGE_SECONDS = 3_600.0
"""Of bytes that no file refers to. An upload that still runs is younger."""

log = structlog.get_logger(__name__)

RetentionJob: TypeAlias = Callable[[Connection], Awaitable[tuple[int, bool]]]
"""Does one transaction's work; returns the number of rows, and whether there may be more."""


class RetentionAges(Struct, frozen=True, kw_only=True):
    """Seconds after which each kind of row is merged or deleted. None keeps the rows."""

    deltas: float = 3_600.0
    events: float | None = None
    tasks: float | None = None
    inputs: float = 604_800.0
    notices: float = 2_592_000.0
    queue_log: float = 604_800.0
    answers: float = 86_400.0
    signals: float = 86_400.0
    usage: float = 34_560_000.0
    memories: float | None = None
    files: float | None = None
    """Of files that no thread refers to."""


class Retention(PeriodicJob):
    def __init__(self, database: Database, ages: RetentionAges, *, interval: float) -> None:
        super().__init__(interval=interval)
        self._database = database
        self._jobs: dict[str, RetentionJob] = dict(retention_jobs(ages))

    async def run_once(self) -> dict[str, int]:
        """Run every job until it has nothing left; returns each job's number of rows.

        A job that fails is logged and tried again next time: it must not end the other jobs, nor the
        process, which executes runs.
        """
        rows = {}
        for job in self._jobs:
            try:
                rows[job] = await self._run_job(job)
            except DATABASE_UNAVAILABLE:
                raise
            except Exception:
                telemetry.retention_failures.labels(job=job).inc()
                log.exception("retention_job_failed", job=job)
        if any(rows.values()):
            log.info("retention_done", **{job: count for job, count in rows.items() if count})
        return rows

    async def _run_job(self, job: str) -> int:
        """Work a fifth of the time, so that runs get the rest of the database's CPU."""
        rows, is_more = 0, True
        while is_more and not self.stopping.is_set():
            began = time.perf_counter()
            async with self._database.transaction() as connection:
                if not await retention.try_lock(connection, job):
                    break
                count, is_more = await self._jobs[job](connection)
            rows += count
            if count:
                telemetry.retention_rows.labels(job=job).inc(count)
            if is_more:
                took = time.perf_counter() - began
                await wait_for_next(self.stopping, took * PAUSE_PER_WORK)
        return rows

    def log_outage(self, error: str) -> None:
        log.warning("retention_failed", error=error)


def retention_jobs(ages: RetentionAges) -> list[tuple[str, RetentionJob]]:
    """The retention jobs by name; those with age None are left out."""
    jobs_for_finished_runs: list[tuple[str, float | None, _ForFinishedRuns]] = [
        ("merge_deltas", ages.deltas, _merge_deltas),
        ("prune_events", ages.events, retention.prune_events),
        ("delete_tasks", ages.tasks, retention.delete_tasks),
        ("delete_inputs", ages.inputs, retention.delete_inputs),
    ]
    jobs_for_old_rows: list[tuple[str, float | None, _ForOldRows]] = [
        ("delete_notices", ages.notices, feed.delete_old),
        ("delete_queue_log", ages.queue_log, deliveries.delete_log),
        ("delete_responses", ages.answers, idempotency.delete_old),
        ("delete_signals", ages.signals, signals.delete_old),
        ("delete_files", ages.files, files.delete_unreferred),
        ("delete_unused_bytes", UNUSED_BYTES_AGE_SECONDS, blobs.delete_unused),
        ("delete_usage", ages.usage, ledger.delete_old),
        ("delete_memories", ages.memories, memories.delete_old),
        ("delete_workers", DEAD_WORKER_AGE_SECONDS, _delete_dead_workers),
    ]
    return [
        ("sum_usage", _sum_usage),
        *(
            (name, _job_for_finished_runs(name, age, do))
            for name, age, do in jobs_for_finished_runs
            if age is not None
        ),
        *(
            (name, _job_for_old_rows(age, do))
            for name, age, do in jobs_for_old_rows
            if age is not None
        ),
    ]


_ForFinishedRuns: TypeAlias = Callable[[Connection, Sequence[FinishedRun]], Awaitable[int]]
_ForOldRows: TypeAlias = Callable[[Connection, float, int], Awaitable[int]]


def _job_for_finished_runs(name: str, age: float, do: _ForFinishedRuns) -> RetentionJob:
    async def job(connection: Connection) -> tuple[int, bool]:
        finished = await retention.next_finished(
            connection, name, older_than=age, limit=RUNS_PER_BATCH
        )
        if not finished:
            return 0, False
        rows = await do(connection, finished)
        await retention.save_cursor(connection, name, finished[-1])
        return rows, len(finished) == RUNS_PER_BATCH

    return job


def _job_for_old_rows(age: float, do: _ForOldRows) -> RetentionJob:
    async def job(connection: Connection) -> tuple[int, bool]:
        rows = await do(connection, age, ROWS_PER_BATCH)
        return rows, rows >= ROWS_PER_BATCH

    return job


async def _sum_usage(connection: Connection) -> tuple[int, bool]:
    added = await sums.sum_next_hour(connection)
    return added or 0, added is not None


async def _merge_deltas(connection: Connection, finished: Sequence[FinishedRun]) -> int:
    return sum([await retention.merge_deltas(connection, run) for run in finished])


async def _delete_dead_workers(connection: Connection, older_than: float, _: int) -> int:
    return await workers.remove_dead(connection, older_than)
