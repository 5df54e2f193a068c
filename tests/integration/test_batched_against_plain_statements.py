"""Each batched statement gives the same answers and rows as the plain statements, after any history."""

import json
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from app.clock import SystemClock, new_id
from app.domain.checkpoints import Checkpoint
from app.domain.events.run_events import RunCreated, RunStart
from app.domain.events.step_events import StepEnd
from app.domain.ids import AgentId, InputId, RunId, Tenant, ThreadId, WorkerId
from app.domain.runs.rate_limits import PARTIAL_ANSWER, PartialAnswer, partial_to_json
from app.domain.runs.runs import NewRun
from app.domain.structs import replace
from app.domain.tools.tool_calls import CallState, CallStatus, ToolResult, UnreportedOutcome
from app.domain.usage.billed_requests import BilledRequest, BilledTokens, Cost, UsageKind
from app.storage.checkpoints import batched
from app.storage.events import batched_append, event_log
from app.storage.events.batched_append import Flush
from app.storage.postgres.connect import RawConnection, read_json, read_uuids_as_text
from app.storage.postgres.database import Database, RawPool
from app.storage.runs import claims, runs
from app.storage.threads import inputs, threads
from tests.support import plain_statements
from tests.support.stored_runs import (
    TIMEOUT,
    call_of,
    checkpoint_of,
    die,
    done,
    entries_of,
    flush_of,
    some_run,
    worker,
)

pytestmark = pytest.mark.anyio

NOW = SystemClock().now
BATCHED, PLAIN = Tenant("hot"), Tenant("obvious")
STEPS = 60
CREATED = RunCreated("clerk", "created", 0, [])
FIRST = (CREATED, RunStart({"run_id": "its own"}))
_TABLES = ("threads", "runs", "messages", "inputs", "tool_calls", "events", "event_heads", "usage")
_NOT_COMPARED = ["tenant", "created_at", "updated_at", "started_at", "ts", "at", "lost_seconds"]


_WAIT = text("""
WITH silent AS (
    UPDATE event_heads SET run_id = NULL, attempt = NULL
    WHERE tenant = :tenant AND thread_id = :thread_id AND run_id = :run_id
)
UPDATE runs SET status = 'waiting', owner = NULL, waiting_reason = 'rate_limit',
    waiting_message = 'rate_limit', waiting_until = :until, state = CAST(:state AS jsonb),
    cancel_requested_at = CASE WHEN :cancel THEN timestamptz '2026-01-01' END
WHERE tenant = :tenant AND id = :run_id AND status = 'running'
""")


@pytest.fixture
async def plain(database: Database) -> AsyncIterator[RawConnection]:
    """A connection for the plain statements."""
    connection = await database.listener()
    await read_uuids_as_text(connection)
    await read_json(connection)
    yield connection
    await connection.close()


class EqualTenants:
    """Two tenants with the same threads and runs. Each action is applied to both."""

    def __init__(self, database: Database, plain: RawConnection, chance: random.Random) -> None:
        self.database = database
        self.pool: RawPool = database.pool
        self.plain = plain
        self.chance = chance
        self.threads = [ThreadId(new_id()) for _ in range(3)]
        self.runs: list[NewRun] = []
        self.workers: list[WorkerId] = []
        self.history: list[str] = []

    async def random_action(self) -> None:
        actions = {
            "admit": self._admit,
            "enqueue": self._enqueue,
            "claim": self._claim,
            "flush": self._flush,
            "checkpoint": self._checkpoint,
            "release": self._release,
            "die": self._die,
            "wait": self._wait,
        }
        weights = [3, 2, 4, 3, 6, 1, 1, 2]
        [name] = self.chance.choices(list(actions), weights)
        one, other = await actions[name]()
        self.history.append(f"{name} -> {one}")
        assert one == other, self.history
        for row, other_row in zip(await self._rows(BATCHED), await self._rows(PLAIN), strict=True):
            assert row == other_row, self.history

    async def _rows(self, tenant: Tenant) -> list[dict[str, Any]]:
        return [
            {"table": table, **json.loads(row["text"])}
            for table in _TABLES
            for row in await self.pool.fetch(
                f"SELECT (to_jsonb(t) - $2::text[])::text AS text FROM {table} t "
                "WHERE tenant = $1 ORDER BY 1",
                tenant,
                _NOT_COMPARED,
            )
        ]

    def _new_run(self) -> NewRun:
        taken = self.chance.choice(self.runs).id if self.chance.random() < 0.1 else None
        run = some_run(
            *"ab"[: self.chance.randint(1, 2)], thread_id=self.chance.choice(self.threads)
        )
        run = replace(run, thread_key=self.chance.choice((None, "a key", "another")))
        return run if taken is None else replace(run, id=RunId(taken))

    async def _admit(self) -> tuple[object, object]:
        if not self.runs:
            self.workers.append(await worker(self.pool))
        owner, events, at = self.chance.choice(self.workers), entries_of(*FIRST, step=None), NOW()
        run = self._new_run() if self.runs else some_run(thread_id=self.threads[0])
        fast = await claims.admit(self.pool, replace(run, tenant=BATCHED), owner, events, at)
        slow = await plain_statements.admit(
            self.plain, replace(run, tenant=PLAIN), owner, events, at
        )
        if fast is not None:
            self.runs.append(run)
        return fast and (fast.first_message_seq, fast.event_seq), slow

    async def _enqueue(self) -> tuple[object, object]:
        run, at = some_run("c", "d", thread_id=self.chance.choice(self.threads)), NOW()
        waiting = [(InputId(new_id()), message) for message in run.messages]
        for tenant in (BATCHED, PLAIN):
            async with self.database.transaction() as connection:
                await threads.create(connection, tenant, run.thread_id)
                thread = await threads.lock(connection, tenant, run.thread_id)
                assert thread is not None
                occupied = thread.open_run_id is not None
                seq = await event_log.next_seq(connection, tenant, run.thread_id)
                mine = replace(run, tenant=tenant)
                await runs.insert_created(
                    connection, mine, admitted=not occupied, events_from=seq, at=at
                )
                await inputs.queue(connection, tenant, run.thread_id, run.id, waiting)
                created = [(run.id, entry) for entry in entries_of(CREATED, step=None)]
                assert (
                    await event_log.append_events(connection, tenant, run.thread_id, created, at)
                    == seq
                )
                changed = {"queue_length": thread.queue_length + 1}
                await threads.change(
                    connection,
                    tenant,
                    run.thread_id,
                    changed if occupied else {"open_run_id": run.id},
                )
        self.runs.append(run)
        return None, None

    async def _claim(self) -> tuple[object, object]:
        if not self.runs:
            return None, None
        run, owner = self.chance.choice(self.runs), self.chance.choice(self.workers)
        fast = await claims.claim(self.pool, BATCHED, run.thread_id, run.id, owner, TIMEOUT)
        slow = await plain_statements.claim(self.plain, replace(run, tenant=PLAIN), owner)
        return (
            fast
            and (
                fast.record.attempt,
                fast.previous_state.value,
                fast.taken_over,
                fast.next_message_seq,
            ),
            slow,
        )

    async def _attempt_of(self, run: NewRun) -> int:
        """The current attempt, sometimes a stale one."""
        attempt: int = await self.pool.fetchval(
            "SELECT attempt FROM runs WHERE tenant = $1 AND id = $2", BATCHED, run.id
        )
        return attempt - (self.chance.random() < 0.2)

    async def _flush(self) -> tuple[object, object]:
        some = self.chance.sample(self.runs, min(3, len(self.runs)))
        texts = [["x", "y", "z"][: self.chance.randint(1, 3)] for _ in some]
        attempts = [await self._attempt_of(run) for run in some]
        at = NOW()

        def flushes(tenant: Tenant) -> list[Flush]:
            return [
                flush_of(replace(run, tenant=tenant), *events, attempt=attempt)
                for run, events, attempt in zip(some, texts, attempts, strict=True)
            ]

        return (
            await batched_append.flush(self.pool, flushes(BATCHED), at) if some else {},
            await plain_statements.flush(self.plain, flushes(PLAIN), at),
        )

    async def _checkpoint(self) -> tuple[object, object]:
        some = self.chance.sample(self.runs, min(2, len(self.runs)))
        writes = [
            (self._with_usage(await self._some_checkpoint(run)), entries_of(StepEnd(), step=None))
            for run in some
        ]
        at = NOW()

        def of_tenant(tenant: Tenant) -> list[tuple[Checkpoint, list[event_log.EventEntry]]]:
            return [(replace(one, tenant=tenant), entries) for one, entries in writes]

        return (
            await batched.checkpoint(self.pool, of_tenant(BATCHED), at) if some else {},
            await plain_statements.checkpoint(self.database, of_tenant(PLAIN), at),
        )

    async def _some_checkpoint(self, run: NewRun) -> Checkpoint:
        next_seq = await self.pool.fetchval(
            "SELECT next_message_seq FROM threads WHERE tenant = $1 AND id = $2",
            *(BATCHED, run.thread_id),
        )
        next_seq -= self.chance.random() < 0.1
        attempt = await self._attempt_of(run)
        status = self.chance.choice([CallStatus.PENDING, CallStatus.RUNNING, CallStatus.SUCCEEDED])
        match self.chance.choice(["message", "calls", "settled", "done"]):
            case "message":
                return checkpoint_of(run, "Hi", "there", attempt=attempt, next_seq=next_seq)
            case "calls":
                calls = [call_of(run, status), self._unreported_call(run)]
                return checkpoint_of(run, "I will", attempt=attempt, next_seq=next_seq, calls=calls)
            case "settled":
                return checkpoint_of(run, attempt=attempt, next_seq=next_seq, calls_settled=True)
            case _:
                return checkpoint_of(
                    run, "Bye", attempt=attempt, next_seq=next_seq, state=done(), calls_settled=True
                )

    def _with_usage(self, checkpoint: Checkpoint) -> Checkpoint:
        """With some rows of the usage ledger. A number that was written before is skipped."""
        billed = [
            BilledRequest(
                number=self.chance.randint(1, 9),
                step_index=0,
                agent_id=AgentId("clerk"),
                model="m",
                provider="p",
                kind=UsageKind.INFERENCE,
                tokens=BilledTokens(input=5, output=6, cache_read=1, cache_write=2, reasoning=3),
                cost=self.chance.choice([None, Cost(7, "list")]),
            )
            for _ in range(self.chance.choice((0, 0, 1, 2)))
        ]
        return replace(checkpoint, billed=tuple(billed))

    def _unreported_call(self, run: NewRun) -> CallState:
        """A call that may have a result that isn't reported yet."""
        result = ToolResult.success("transfer", "a\0b").with_metadata(fee=1)
        unreported = self.chance.choice([None, UnreportedOutcome(result, (("seen", {"n": 1}),))])
        return replace(call_of(run, CallStatus.PENDING, "call-2"), unreported_outcome=unreported)

    async def _release(self) -> tuple[object, object]:
        if not self.runs:
            return None, None
        run = self.chance.choice(self.runs)
        attempt = await self._attempt_of(run)
        async with self.database.transaction() as connection:
            one, other = [
                await runs.release(connection, tenant, run.id, attempt, failed=True)
                for tenant in (BATCHED, PLAIN)
            ]
        return one, other

    async def _wait(self) -> tuple[object, object]:
        """An executing run waits for a rate limit, perhaps with half an answer, and has a message to read."""
        run = self.chance.choice(self.runs)
        until = NOW() + self.chance.choice([-1, 1]) * timedelta(hours=1)
        partial = self.chance.choice([None, partial_to_json(PartialAnswer("so", "cut"))])
        state = json.dumps({"extensions": {PARTIAL_ANSWER: partial}})
        is_to_be_cancelled = self.chance.random() < 0.3
        waiting = [(InputId(new_id()), message) for message in some_run("steer").messages]
        changed = []
        for tenant in (BATCHED, PLAIN):
            async with self.database.transaction() as connection:
                mine = (tenant, run.thread_id, run.id, until, state, is_to_be_cancelled)
                names = ("tenant", "thread_id", "run_id", "until", "state", "cancel")
                rows = await connection.execute(_WAIT, dict(zip(names, mine, strict=True)))
                changed.append(rows.rowcount)
                if rows.rowcount:
                    await inputs.queue(connection, tenant, run.thread_id, run.id, waiting)
        return changed[0], changed[1]

    async def _die(self) -> tuple[object, object]:
        self.workers.append(await worker(self.pool))
        await die(self.pool, self.chance.choice(self.workers))
        return None, None


@pytest.mark.parametrize("seed", range(3))
async def test_batched_and_plain_statements_lead_to_the_same_rows(
    database: Database, plain: RawConnection, seed: int
) -> None:
    tenants = EqualTenants(database, plain, random.Random(seed))
    await tenants._admit()
    for _ in range(STEPS):
        await tenants.random_action()
    names = {line.split()[0] for line in tenants.history}
    assert names >= {"admit", "claim", "flush", "checkpoint", "wait"}
