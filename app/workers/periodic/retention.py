"""Retention: what is old takes less room, or none. Every process sees to it; one at a time is at a duty.

A duty is done in short transactions, one after the other for as long as there is more. Each leaves
behind all that it has done, so whoever comes next, after a crash too, goes on from there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from app import telemetry
from app.clock import yield_to_loop
from app.storage import idempotency, retention, workers
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Connection, Database
from app.storage.queue import deliveries
from app.storage.retention import FinishedRun
from app.storage.tickets import feed, signals
from app.workers.periodic.loop import wait_for_next

RUNS_PER_BATCH = 20
ROWS_PER_BATCH = 2_000
DEAD_WORKER_AGE_SECONDS = 3_600.0

log = structlog.get_logger(__name__)

RetentionJob: TypeAlias = Callable[[Connection], Awaitable[tuple[int, bool]]]
"""Does one transaction's worth; how many rows that came to, and whether there may be more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionAges:
    """Seconds after which each kind of thing isn't kept as it was; None: it is kept for ever."""

    deltas: float = 3_600.0
    events: float | None = None
    tasks: float | None = None
    inputs: float = 604_800.0
    notices: float = 2_592_000.0
    queue_log: float = 604_800.0
    answers: float = 86_400.0
    signals: float = 86_400.0


class Retention:
    def __init__(self, database: Database, ages: RetentionAges, *, interval: float) -> None:
        self._database = database
        self._interval = interval
        self._stopping = asyncio.Event()
        self._duties: dict[str, RetentionJob] = dict(_duties(ages))

    async def run_once(self) -> dict[str, int]:
        """Do every duty until nothing is left of it; how many rows each came to here.

        One that breaks is told of and tried again the next time: neither the others nor the process
        that executes runs shall end by it.
        """
        rows = {}
        for duty in self._duties:
            try:
                rows[duty] = await self._do(duty)
            except DATABASE_UNAVAILABLE:
                raise
            except Exception:
                telemetry.retention_failures.labels(duty=duty).inc()
                log.exception("duty_broke", duty=duty)
        return rows

    async def _do(self, duty: str) -> int:
        rows, is_more = 0, True
        while is_more and not self._stopping.is_set():
            async with self._database.transaction() as connection:
                if not await retention.try_lock(connection, duty):
                    break
                count, is_more = await self._duties[duty](connection)
            rows += count
            telemetry.retention_rows.labels(duty=duty).inc(count)
            await yield_to_loop()
        return rows

    async def run(self) -> None:
        while await wait_for_next(self._stopping, self._interval):
            try:
                rows = await self.run_once()
            except DATABASE_UNAVAILABLE as error:
                log.warning("retention_missed", error=type(error).__name__)
            else:
                if any(rows.values()):
                    log.info("kept", **{duty: count for duty, count in rows.items() if count})

    def stop(self) -> None:
        self._stopping.set()


def _duties(ages: RetentionAges) -> list[tuple[str, RetentionJob]]:
    """All that there is to do, by its name; what is kept for ever needs no doing."""
    along_runs: list[tuple[str, float | None, _OnRuns]] = [
        ("merge_deltas", ages.deltas, _merge_deltas),
        ("prune_events", ages.events, retention.prune_events),
        ("forget_tasks", ages.tasks, retention.forget_tasks),
        ("forget_inputs", ages.inputs, retention.forget_inputs),
    ]
    by_age: list[tuple[str, float, _ByAge]] = [
        ("forget_notices", ages.notices, feed.forget),
        ("forget_queue_log", ages.queue_log, deliveries.forget_log),
        ("forget_answers", ages.answers, idempotency.forget),
        ("remove_signals", ages.signals, signals.remove_old),
        ("forget_workers", DEAD_WORKER_AGE_SECONDS, _forget_workers),
    ]
    return [
        *((name, _along_runs(name, age, do)) for name, age, do in along_runs if age is not None),
        *((name, _by_age(age, do)) for name, age, do in by_age),
    ]


_OnRuns: TypeAlias = Callable[[Connection, Sequence[FinishedRun]], Awaitable[int]]
_ByAge: TypeAlias = Callable[[Connection, float, int], Awaitable[int]]


def _along_runs(name: str, age: float, do: _OnRuns) -> RetentionJob:
    async def duty(connection: Connection) -> tuple[int, bool]:
        finished = await retention.next_finished(
            connection, name, older_than=age, limit=RUNS_PER_BATCH
        )
        if not finished:
            return 0, False
        rows = await do(connection, finished)
        await retention.save_cursor(connection, name, finished[-1])
        return rows, len(finished) == RUNS_PER_BATCH

    return duty


def _by_age(age: float, do: _ByAge) -> RetentionJob:
    async def duty(connection: Connection) -> tuple[int, bool]:
        rows = await do(connection, age, ROWS_PER_BATCH)
        return rows, rows >= ROWS_PER_BATCH

    return duty


async def _merge_deltas(connection: Connection, finished: Sequence[FinishedRun]) -> int:
    return sum([await retention.merge_deltas(connection, run) for run in finished])


async def _forget_workers(connection: Connection, older_than: float, _: int) -> int:
    return await workers.remove_dead(connection, older_than)
