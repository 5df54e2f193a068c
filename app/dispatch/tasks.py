"""The worker's other half: background tasks, each claimed like a run and executed in a slot of its own.

A task's tool runs here whether its run executes, waits or is done. What it leaves behind when its worker
is lost is decided by its effect: what may be run again is, of the rest the outcome is unknown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import structlog

from app import telemetry
from app.agents.roster import Roster
from app.clock import pause
from app.control.tasks import end_task
from app.dispatch.queue import Handled
from app.dispatch.task_voice import TaskVoice
from app.domain.ids import WorkerId
from app.domain.tasks import OUTCOME_UNKNOWN, TaskOutcome, failed, outcome_of
from app.domain.tool_calls import ToolResult
from app.events.outgoing import Outgoing
from app.runtime.agent import Unresolvable
from app.runtime.cancellation import Interrupted, Interruption, Wish
from app.runtime.ports import ToolContext
from app.storage import deliveries, tasks
from app.storage.database import DATABASE_AWAY, Database
from app.storage.tasks import ClaimedTask, TaskKey

MOST_LOSSES = 5
"""Workers that may be lost over a task before it is given up."""
LAST_PATIENCE = 2.0
TRY_AGAIN = 0.25

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBench:
    """What every task works with."""

    database: Database
    outgoing: Outgoing
    roster: Roster


@dataclass(slots=True)
class TaskExecution:
    """One claimed task on this worker, from the claim to its end."""

    bench: TaskBench
    claimed: ClaimedTask
    interruption: Interruption = field(default_factory=Interruption)
    _read: int = 0

    async def carry_out(self) -> None:
        """Run the tool and write what came of it; never raises but for cancellation."""
        task = self.claimed.task
        structlog.contextvars.bind_contextvars(
            task_id=task.id, run_id=task.run_id, tenant=self.claimed.tenant
        )
        try:
            async with self.interruption.interruptible():
                outcome = await self._outcome()
        except Interrupted as interrupted:
            if interrupted.wish is Wish.HAND_OVER:
                await self.let_go()
            return
        except DATABASE_AWAY as error:
            log.warning("task_broken_off", error=repr(error))
            await self.let_go()
            return
        except Exception:
            log.exception("task_failed")
            outcome = failed("Something broke on our side; the logs say what.")
        await self._end(outcome)

    async def _outcome(self) -> TaskOutcome:
        task = self.claimed.task
        if self.claimed.taken_over and not task.effect.may_be_rerun:
            return failed(OUTCOME_UNKNOWN)
        if task.losses > MOST_LOSSES:
            return failed(f"{task.losses} workers were lost over this task")
        agent = await self.bench.roster.resolve(
            self.claimed.tenant, task.agent_id, task.agent_version
        )
        if isinstance(agent, Unresolvable):
            return failed(agent.reason)
        tool = agent.tools.get(task.tool_name)
        if tool is None:
            return failed(f"there is no tool {task.tool_name!r} any more")
        voice = TaskVoice(self.bench.outgoing, self.claimed)
        context = ToolContext(
            run_id=task.run_id,
            thread_id=task.thread_id,
            call_id=task.call_id,
            tool_name=task.tool_name,
            idempotency_key=task.idempotency_key,
            say=voice.say,
            agent=agent.spec,
            inbox=self._messages,
        )
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(voice.run())
            try:
                result = await tool.execute(dict(task.arguments), context)
            except Exception as error:  # whoever wrote the tool
                log.warning("tool_raised", tool=task.tool_name, exc_info=True)
                result = ToolResult.error(task.tool_name, f"Execution failed: {error}")
            showing.cancel()
        await voice.show()
        return outcome_of(result)

    async def _messages(self) -> Sequence[str]:
        pool = self.bench.database.hot
        fresh = await tasks.read_messages(pool, self.claimed.key, self._read)
        self._read += len(fresh)
        return fresh

    async def let_go(self) -> None:
        """Nobody goes on with it here: another worker may, if trying again is safe."""
        if self.claimed.task.effect.may_be_rerun:
            await self._until_written(self._release)
        else:
            await self._end(failed(OUTCOME_UNKNOWN))

    async def _end(self, outcome: TaskOutcome) -> None:
        async def write() -> None:
            if not await end_task(self.bench.outgoing, self.claimed, outcome):
                log.info("task_was_over", attempt=self.claimed.task.attempt)

        await self._until_written(write)

    async def _release(self) -> None:
        async with self.bench.database.transaction() as connection:
            if await tasks.release(connection, self.claimed.key):
                await deliveries.enqueue_task(connection, self.claimed.key)

    async def _until_written(self, write: Callable[[], Awaitable[None]]) -> None:
        """Outages are waited for. What can't be written at all is found by `look`, and by its loss."""
        while True:
            try:
                await write()
                return
            except DATABASE_AWAY:
                await pause(TRY_AGAIN)
            except Exception:
                log.exception("task_not_written")
                return


class TaskWorker:
    """Executes at most `slots` tasks at once."""

    def __init__(
        self, bench: TaskBench, me: WorkerId, *, slots: int, heartbeat_timeout: float
    ) -> None:
        self._bench = bench
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

    async def handle(self, key: TaskKey) -> Handled:
        """Claim a delivered task, if there is a slot for it, and execute it if it is to be had."""
        if self._free <= 0 or self._tasks is None or self._stopping.is_set():
            return Handled.BUSY
        self._free -= 1
        self._idle.clear()
        try:
            claimed = await tasks.claim(
                self._bench.database.hot, key, self._me, self._heartbeat_timeout
            )
        except BaseException:
            self._slot_is_free()
            raise
        if claimed is None:
            self._slot_is_free()
        else:
            self._launch(claimed, self._tasks)
        return Handled.DONE

    async def look(self) -> None:
        """Once a second: stop what was ended elsewhere, and give up what nobody here executes.

        A task that is ours and that nobody executes was claimed by a commit whose reply was lost, or its
        end could not be written. Seen twice, it is let go: while this process lives, nobody else may
        have it.
        """
        # Those of before the question: of one that is claimed meanwhile the answer may not know.
        executing = dict(self._executions)
        owned = await tasks.owned(self._bench.database.hot, self._me)
        for key, execution in executing.items():
            if key not in owned:
                execution.interruption.cancel()
        strays = owned - executing.keys() - self._executions.keys()
        for key in strays & self._strays:
            log.warning("stray_task_let_go", task_id=key.task_id, attempt=key.attempt)
            await self._abandon(key)
        self._strays = strays

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
            async with asyncio.timeout(LAST_PATIENCE):
                await self._idle.wait()
        except TimeoutError:
            log.error("left_tasks_behind", tasks=self.executing)

    @property
    def executing(self) -> int:
        return len(self._executions)

    def _launch(self, claimed: ClaimedTask, group: asyncio.TaskGroup) -> None:
        if claimed.taken_over:
            log.warning("task_taken_over", task_id=claimed.task.id, attempt=claimed.task.attempt)
        execution = TaskExecution(self._bench, claimed)
        if self._stopping.is_set():
            execution.interruption.hand_over(now=True)
        self._executions[claimed.key] = execution
        telemetry.tasks_executing.inc()
        task = group.create_task(execution.carry_out())
        task.add_done_callback(lambda _: self._ended(claimed.key))

    def _ended(self, key: TaskKey) -> None:
        del self._executions[key]
        telemetry.tasks_executing.dec()
        self._slot_is_free()

    def _slot_is_free(self) -> None:
        self._free += 1
        if self._free == self._slots:
            self._idle.set()

    async def _abandon(self, key: TaskKey) -> None:
        """Nobody knows whether its tool has run."""
        async with self._bench.database.reading() as connection:
            task = await tasks.get(connection, key.tenant, key.task_id)
        if task is not None:
            await TaskExecution(self._bench, ClaimedTask(key.tenant, task, True)).let_go()
