"""The worker's other half: background tasks, each claimed like a run and executed in a slot of its own.

A task's tool runs here whether its run executes, waits or is done.
"""

import asyncio
from collections.abc import Collection, Mapping

import structlog

from app import telemetry
from app.domain.children.background_tasks import TaskKey
from app.domain.ids import WorkerId
from app.storage.children import background_tasks
from app.storage.children.background_tasks import ClaimedTask
from app.workers.background_tasks.execution import TaskContext, TaskExecution
from app.workers.delivery_queue import DeliveryResult
from app.workers.liveness.poison_guard import PoisonGuard

STOP_TIMEOUT_SECONDS = 2.0
TRUSTED_AFTER_SECONDS = 600.0
"""Seconds that a suspicious task keeps others like it waiting, unless it ends before."""

log = structlog.get_logger(__name__)


class TaskWorker:
    """Executes at most `slots` tasks at once."""

    def __init__(
        self,
        bench: TaskContext,
        me: WorkerId,
        poison_guard: PoisonGuard,
        *,
        slots: int,
        heartbeat_timeout: float,
        trusted_after: float = TRUSTED_AFTER_SECONDS,
    ) -> None:
        self._bench = bench
        self._suspicion = poison_guard
        self._trusted_after = trusted_after
        self._me = me
        self._slots = self._free = slots
        self._heartbeat_timeout = heartbeat_timeout
        self._executions: dict[TaskKey, TaskExecution] = {}
        self._strays: set[TaskKey] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Own the executions, until `stop` has seen them out."""
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            await self._stopping.wait()
            await self._idle.wait()
            self._tasks = None

    async def handle(self, key: TaskKey) -> DeliveryResult:
        """Claim a delivered task, if there is a slot for it, and execute it if it is to be had."""
        if self._free <= 0 or self._tasks is None or self._stopping.is_set():
            return DeliveryResult.BUSY
        self._free -= 1
        self._idle.clear()
        try:
            claimed = await self._claim(key)
        except BaseException:
            self._slot_is_free()
            raise
        if claimed is None:
            self._slot_is_free()
        else:
            self._launch(claimed, self._tasks)
        return DeliveryResult.DONE

    async def _claim(self, key: TaskKey) -> ClaimedTask | None:
        async def claim(unless_lost: Collection[int]) -> ClaimedTask | None:
            return await background_tasks.claim(
                self._bench.database.pool,
                key,
                self._me,
                self._heartbeat_timeout,
                unless_lost=unless_lost,
            )

        return await self._suspicion.claim(
            (key.tenant, key.task_id), claim, lambda claimed: claimed.task.losses
        )

    async def check_owned(self) -> None:
        """Once a second: stop what was ended elsewhere, and give up what nobody here executes.

        A task that is ours and that nobody executes was claimed by a commit whose reply was lost, or its
        end could not be written. Seen twice, it is let go: while this process lives, nobody else may
        have it.
        """
        # Those of before the question: of one that is claimed meanwhile the answer may not know.
        executing = dict(self._executions)
        self._trust(executing)
        owned = await background_tasks.owned(self._bench.database.pool, self._me)
        for key, execution in executing.items():
            if key not in owned:
                execution.interruption.cancel()
        strays = owned - executing.keys() - self._executions.keys()
        for key in strays & self._strays:
            log.warning("stray_task_let_go", task_id=key.task_id, attempt=key.attempt)
            await self._abandon(key)
        self._strays = strays

    def _trust(self, executing: Mapping[TaskKey, TaskExecution]) -> None:
        """A task makes no progress that could be seen: that its process still lives has to do."""
        now = asyncio.get_running_loop().time()
        for key, execution in executing.items():
            if now - execution.since >= self._trusted_after:
                self._suspicion.dismiss((key.tenant, key.task_id))

    async def stop(self, grace: float) -> None:
        """Take nothing new. What may be run again is handed over at once, the rest after a grace."""
        self._stopping.set()
        for execution in list(self._executions.values()):
            rerun = execution.claimed.task.effect.may_be_rerun
            execution.interruption.hand_over(now=rerun)
        try:
            async with asyncio.timeout(grace):
                await self._idle.wait()
                return
        except TimeoutError:
            log.warning("giving_up_tasks", tasks=self.executing)
        for execution in list(self._executions.values()):
            execution.interruption.hand_over(now=True)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_SECONDS):
                await self._idle.wait()
        except TimeoutError:
            log.error("left_tasks_behind", tasks=self.executing)

    @property
    def executing(self) -> int:
        return len(self._executions)

    def _launch(self, claimed: ClaimedTask, group: asyncio.TaskGroup) -> None:
        if claimed.taken_over:
            log.warning("task_taken_over", task_id=claimed.task.id, attempt=claimed.task.attempt)
        now = asyncio.get_running_loop().time()
        execution = TaskExecution(self._bench, claimed, since=now)
        if self._stopping.is_set():
            execution.interruption.hand_over(now=True)
        self._executions[claimed.key] = execution
        telemetry.tasks_executing.inc()
        task = group.create_task(execution.run())
        task.add_done_callback(lambda _: self._ended(claimed.key))

    def _ended(self, key: TaskKey) -> None:
        del self._executions[key]
        self._suspicion.dismiss((key.tenant, key.task_id))
        telemetry.tasks_executing.dec()
        self._slot_is_free()

    def _slot_is_free(self) -> None:
        self._free += 1
        if self._free == self._slots:
            self._idle.set()

    async def _abandon(self, key: TaskKey) -> None:
        """Nobody knows whether its tool has run."""
        async with self._bench.database.reading() as connection:
            task = await background_tasks.get(connection, key.tenant, key.task_id)
        if task is not None:
            await TaskExecution(
                self._bench, ClaimedTask(key.tenant, task, True)
            ).release_when_stopping()
