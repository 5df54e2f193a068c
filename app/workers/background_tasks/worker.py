"""The task worker: claims background tasks like runs and executes each in a slot.

A task's tool runs here whether its run executes, waits or is done.
"""

import asyncio
from collections.abc import Mapping

import structlog

from app import telemetry
from app.domain.children.background_tasks import TaskKey
from app.domain.ids import WorkerId
from app.storage.children import background_tasks
from app.storage.children.background_tasks import ClaimedTask
from app.workers.background_tasks.execution import TaskContext, TaskExecution
from app.workers.delivery_queue import DeliveryResult
from app.workers.liveness.poison_guard import PoisonGuard
from app.workers.slots import Slots

TRUSTED_AFTER_SECONDS = 600.0
"""Seconds after which a suspect task no longer keeps this process from claiming another suspect."""

log = structlog.get_logger(__name__)


class TaskWorker:
    """Executes at most `slots` tasks at once."""

    def __init__(
        self,
        context: TaskContext,
        worker_id: WorkerId,
        poison_guard: PoisonGuard,
        *,
        slots: int,
        heartbeat_timeout: float,
        trusted_after: float = TRUSTED_AFTER_SECONDS,
    ) -> None:
        self._context = context
        self._poison_guard = poison_guard
        self._trusted_after = trusted_after
        self._worker_id = worker_id
        self._slots = Slots(slots)
        self._heartbeat_timeout = heartbeat_timeout
        self._executions: dict[TaskKey, TaskExecution] = {}
        self._strays: set[TaskKey] = set()

    async def run(self) -> None:
        """Own the executions' tasks until `stop` has ended them."""
        await self._slots.run()

    async def handle(self, key: TaskKey) -> DeliveryResult:
        """Claim a delivered task in a free slot and execute it; another worker may have it already."""
        if not self._slots.reserve():
            return DeliveryResult.BUSY
        claimed = None
        try:
            with self._poison_guard.claiming((key.tenant, key.task_id)) as claim:
                claimed = await background_tasks.claim(
                    self._context.database.pool,
                    key,
                    self._worker_id,
                    self._heartbeat_timeout,
                    unless_lost=claim.losses_to_skip,
                )
                claim.losses = None if claimed is None else claimed.task.losses
        finally:
            if claimed is None:
                self._slots.free()
        if claimed is not None:
            self._launch(claimed)
        return DeliveryResult.DONE

    async def check_owned(self) -> None:
        """Once a second: interrupt tasks that ended elsewhere, and release stray ones.

        A stray task is owned here and not executed: the reply to its claim was lost, or its result could
        not be saved. The second check that sees it releases it: no other worker claims it while this
        process lives.
        """
        # Copied before the query: its answer may miss a task that is claimed meanwhile.
        executing = dict(self._executions)
        self._dismiss_old_suspects(executing)
        owned = await background_tasks.owned(self._context.database.pool, self._worker_id)
        for key, execution in executing.items():
            if key not in owned:
                execution.interruption.cancel()
        strays = owned - executing.keys() - self._executions.keys()
        for key in strays & self._strays:
            log.warning("unexecuted_task_released", task_id=key.task_id, attempt=key.attempt)
            await self._release_stray(key)
        self._strays = strays

    def _dismiss_old_suspects(self, executing: Mapping[TaskKey, TaskExecution]) -> None:
        """A task commits no progress. One whose process still lives after a while counts as harmless."""
        now = asyncio.get_running_loop().time()
        for key, execution in executing.items():
            if now - execution.started_at >= self._trusted_after:
                self._poison_guard.dismiss((key.tenant, key.task_id))

    async def stop(self, grace: float) -> None:
        """Take no more tasks. Hand over at once those that may be rerun, the others after `grace`."""
        if not await self._slots.hand_over_all(grace, self._hand_over):
            log.error("tasks_abandoned_at_shutdown", tasks=self.executing)

    def _hand_over(self, now: bool) -> None:
        if now:
            log.warning("tasks_interrupted_at_shutdown", tasks=self.executing)
        for execution in list(self._executions.values()):
            may_be_rerun = execution.claimed.task.effect.may_be_rerun
            execution.interruption.hand_over(now=now or may_be_rerun)

    @property
    def executing(self) -> int:
        return len(self._executions)

    def _launch(self, claimed: ClaimedTask) -> None:
        if claimed.taken_over:
            log.warning("task_taken_over", task_id=claimed.task.id, attempt=claimed.task.attempt)
        now = asyncio.get_running_loop().time()
        execution = TaskExecution(self._context, claimed, started_at=now)
        if self._slots.stopping.is_set():
            execution.interruption.hand_over(now=True)
        self._executions[claimed.key] = execution
        telemetry.tasks_executing.inc()
        task = self._slots.start(execution.run())
        task.add_done_callback(lambda _: self._ended(claimed.key))

    def _ended(self, key: TaskKey) -> None:
        del self._executions[key]
        self._poison_guard.dismiss((key.tenant, key.task_id))
        telemetry.tasks_executing.dec()
        self._slots.free()

    async def _release_stray(self, key: TaskKey) -> None:
        """Release or end a task whose tool may have run: this process can't know."""
        async with self._context.database.reading() as connection:
            task = await background_tasks.get(connection, key.tenant, key.task_id)
        if task is not None:
            await TaskExecution(
                self._context, ClaimedTask(key.tenant, task, True)
            ).release_when_stopping()
