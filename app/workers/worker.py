"""The worker: this process's slots, and the executions in them."""

import asyncio
from collections.abc import Callable, Collection, Coroutine

import structlog

from app import telemetry
from app.domain.ids import RunId, Tenant, WorkerId
from app.events.sse_encoding import EventBatch
from app.storage.queue import cancel_requests
from app.storage.runs import claims
from app.storage.runs.runs import RunKey
from app.workers.execution import Execution
from app.workers.execution_context import ClaimedRun, ExecutionContext
from app.workers.liveness.poison_guard import PoisonGuard

STOP_TIMEOUT_SECONDS = 2.0
"""Time for what was interrupted to end; whatever still hasn't is taken over by other workers."""

log = structlog.get_logger(__name__)


class Worker:
    """Executes at most `slots` runs at once. A slot is reserved before a run is claimed for it."""

    def __init__(
        self,
        bench: ExecutionContext,
        me: WorkerId,
        poison_guard: PoisonGuard,
        *,
        slots: int,
        heartbeat_timeout: float,
    ) -> None:
        self.worker_id = me
        self._bench = bench
        self._suspicion = poison_guard
        self._slots = self._free = slots
        self._slot_freed = asyncio.Event()
        self._heartbeat_timeout = heartbeat_timeout
        self._executions: dict[tuple[Tenant, RunId], Execution] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Own the tasks of all executions, until `stop` has seen them out."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await self._stopping.wait()
            await self._idle.wait()
            self._tasks = None
            for task in self._beside:
                task.cancel()

    # --- slots ----------------------------------------------------------------------------------

    def reserve(self) -> bool:
        """Take a free slot, if there is one; give it back with `free` or fill it with `launch`."""
        if self._free <= 0 or self._tasks is None or self._stopping.is_set():
            return False
        self._free -= 1
        self._idle.clear()
        return True

    async def reserve_for(self, key: RunKey, seconds: float) -> bool:
        """Take a slot for a delivered run, or wait a little for one.

        A run with a cancel request gets a slot beyond the limit: it is only ended, and a cancel must settle
        however long the runs in the slots take.
        """
        if await self.reserve_within(seconds):
            return True
        if not await cancel_requests.is_requested(self._bench.database.pool, key):
            return False
        if self._tasks is None or self._stopping.is_set():
            return False
        self._free -= 1
        self._idle.clear()
        return True

    def free(self) -> None:
        self._free += 1
        self._slot_freed.set()
        if self._free == self._slots:
            self._idle.set()

    async def reserve_within(self, seconds: float) -> bool:
        """Wait a little for a slot; False when other workers should have a chance instead."""
        try:
            async with asyncio.timeout(seconds):
                while not self.reserve():
                    if self._stopping.is_set():
                        return False
                    self._slot_freed.clear()
                    await self._slot_freed.wait()
        except TimeoutError:
            return False
        return True

    # --- executions -----------------------------------------------------------------------------

    def launch(self, claimed: ClaimedRun) -> None:
        """Execute a claimed run in a reserved slot."""
        if self._tasks is None:
            raise RuntimeError("the worker isn't running")
        execution = Execution(self._bench, claimed, self._stopping, start_task=self._begin)
        if self._stopping.is_set():
            execution.interruption.hand_over(now=False)
        key = (claimed.record.tenant, claimed.record.id)
        self._executions[key] = execution
        telemetry.runs_executing.inc()
        task = self._tasks.create_task(execution.run())
        task.add_done_callback(lambda _: self._ended(key, execution))

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Let something go on beside the runs, in no slot; it is broken off when the last run has ended.

        It must not raise: that would break off all that executes here.
        """
        if self._tasks is None:
            raise RuntimeError("the worker isn't running")
        task = self._tasks.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    def _ended(self, key: tuple[Tenant, RunId], execution: Execution) -> None:
        if self._executions.get(key) is execution:
            del self._executions[key]
            self._suspicion.dismiss(key)
        telemetry.runs_executing.dec()
        self.free()

    async def claim_and_launch(self, key: RunKey, dispatch_id: str | None) -> bool:
        """Claim a run for a reserved slot; False, with the slot free again, when it isn't to be had."""
        try:
            claimed = await self._claim(key, dispatch_id)
        except BaseException:
            self.free()
            raise
        if claimed is None:
            self.free()
            return False
        if claimed.events:
            self._bench.writer.publish(
                EventBatch(
                    *(key.tenant, key.thread_id, key.run_id),
                    *(claimed.event_seq, claimed.events, claimed.record.updated_at),
                )
            )
        if claimed.taken_over:
            telemetry.takeovers.inc()
            log.warning("taken_over", run_id=key.run_id, attempt=claimed.record.attempt)
        self.launch(
            ClaimedRun(
                record=claimed.record,
                next_seq=claimed.next_message_seq,
                previous_state=claimed.previous_state,
                thread_state=claimed.thread_state,
            )
        )
        return True

    async def _claim(self, key: RunKey, dispatch_id: str | None) -> claims.ClaimedRow | None:
        async def claim(unless_lost: Collection[int]) -> claims.ClaimedRow | None:
            return await claims.claim(
                self._bench.database.pool,
                key.tenant,
                key.thread_id,
                key.run_id,
                self.worker_id,
                self._heartbeat_timeout,
                dispatch_id,
                unless_lost=unless_lost,
            )

        return await self._suspicion.claim(
            (key.tenant, key.run_id), claim, lambda claimed: claimed.record.losses
        )

    def record_progress(self, key: RunKey) -> None:
        """A run has got on since it was claimed."""
        self._suspicion.dismiss((key.tenant, key.run_id))

    def cancel(self, tenant: Tenant, run_id: RunId, reason: str | None) -> None:
        """Interrupt a run that somebody wants cancelled, if it is executed here."""
        execution = self._executions.get((tenant, run_id))
        if execution is not None:
            execution.interruption.cancel(reason)

    def executes(self, key: RunKey) -> bool:
        return (key.tenant, key.run_id) in self._executions

    @property
    def executing(self) -> int:
        return len(self._executions)

    async def stop(self, grace: float) -> None:
        """Take nothing new; hand over at the next safe point, or at once when that takes too long."""
        self._stopping.set()
        self._slot_freed.set()
        self._each(lambda execution: execution.interruption.hand_over(now=False))
        try:
            async with asyncio.timeout(grace):
                await self._idle.wait()
        except TimeoutError:
            log.warning("handing_over_at_once", runs=self.executing)
            self._each(lambda execution: execution.interruption.hand_over(now=True))
            try:
                async with asyncio.timeout(STOP_TIMEOUT_SECONDS):
                    await self._idle.wait()
            except TimeoutError:
                log.error("left_behind", runs=self.executing)

    def _each(self, do: Callable[[Execution], None]) -> None:
        for execution in list(self._executions.values()):
            do(execution)
