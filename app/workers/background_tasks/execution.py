"""One background task on this worker: its tool is run and its result is saved.

If a worker dies while it runs a task, the tool's reconciler is asked. Without one, a task whose effect
allows it is rerun, and any other ends with `outcome_unknown`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import structlog

from app.agents.registry import AgentRegistry
from app.clock import sleep
from app.commands.followups.background_tasks import finish_task
from app.domain.agents.specs import AgentSpec
from app.domain.children.background_tasks import (
    OUTCOME_UNKNOWN,
    TaskOutcome,
    outcome_of,
    outcome_unknown,
    task_failed,
)
from app.domain.events.agent_events import AgentEvent
from app.domain.redaction import Redact, unredacted
from app.domain.tools.reconciliation import DidNotHappen, DontKnow
from app.domain.tools.tool_calls import ToolResult
from app.events.transaction import EventTransactions
from app.runtime.agent import UnknownAgentVersion
from app.runtime.cancellation import Interrupted, Interruption, InterruptReason
from app.runtime.ports import Tool, ToolContext
from app.runtime.tool_calls.interrupted import can_reconcile, reconcile
from app.storage.children import background_tasks
from app.storage.children.background_tasks import ClaimedTask
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.queue import deliveries
from app.workers.background_tasks.activity import TaskEmitter
from app.workers.liveness.poison_guard import MAX_LOSSES

RETRY_INTERVAL_SECONDS = 0.25

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What every execution of a task works with; built once by the composition root."""

    database: Database
    outgoing: EventTransactions
    agents: AgentRegistry
    redact: Redact = unredacted


@dataclass(slots=True)
class TaskExecution:
    """One claimed task on this worker, from its claim to its result."""

    context: TaskContext
    claimed: ClaimedTask
    interruption: Interruption = field(default_factory=Interruption)
    started_at: float = 0.0
    """When it was started here, in the event loop's time."""
    _read: int = 0
    _agent: AgentSpec | None = None

    async def run(self) -> None:
        """Run the tool and save its result; raises nothing but cancellation."""
        task = self.claimed.task
        structlog.contextvars.bind_contextvars(
            task_id=task.id, run_id=task.run_id, tenant=self.claimed.tenant
        )
        try:
            async with self.interruption.interruptible():
                outcome = await self._outcome()
        except Interrupted as interrupted:
            if interrupted.reason is InterruptReason.HAND_OVER:
                await self.release_when_stopping()
            return
        except DATABASE_UNAVAILABLE as error:
            log.warning("task_interrupted_by_outage", error=repr(error))
            await self.release_when_stopping()
            return
        except Exception:
            log.exception("task_failed")
            outcome = task_failed("Something broke on our side; the logs say what.")
        await self._finish(outcome)

    async def _outcome(self) -> TaskOutcome:
        task = self.claimed.task
        if task.losses > MAX_LOSSES:
            # The tool isn't even asked to reconcile: that may be what kills the worker.
            return task_failed(f"{task.losses} workers were lost over this task")
        tool = await self._tool()
        if self.claimed.was_begun:
            reconciler = None if isinstance(tool, TaskOutcome) else tool
            if (known := await self._reconcile(reconciler)) is not None:
                return known
        if isinstance(tool, TaskOutcome):
            return tool
        emitter = TaskEmitter(self.context.outgoing, self.claimed)
        context = replace(self._context(emitter.emit), wait_for_capacity=emitter.wait_for_capacity)
        async with asyncio.TaskGroup() as group:
            emitting = group.create_task(emitter.run())
            try:
                result = await tool.execute(dict(task.arguments), context)
            except Exception as error:  # the tool is the user's code
                log.warning("tool_raised", tool=task.tool_name, exc_info=True)
                result = ToolResult.error(
                    task.tool_name, f"Execution failed: {context.redact(str(error))}"
                )
            emitting.cancel()
        await emitter.emit_pending()
        return outcome_of(result)

    async def _tool(self) -> Tool | TaskOutcome:
        """The tool of the agent version that started the task, or a failure if it isn't available."""
        task = self.claimed.task
        agent = await self.context.agents.resolve(
            self.claimed.tenant, task.agent_id, task.agent_version
        )
        if isinstance(agent, UnknownAgentVersion):
            return task_failed(agent.reason)
        self._agent = agent.spec
        tool = agent.tools.get(task.tool_name)
        return tool or task_failed(f"there is no tool {task.tool_name!r} any more")

    async def _can_reconcile(self) -> bool:
        tool = await self._tool()
        return not isinstance(tool, TaskOutcome) and can_reconcile(tool)

    async def _reconcile(self, tool: Tool | None) -> TaskOutcome | None:
        """The outcome of a task that a lost worker had started; None when it has to be run again."""
        task = self.claimed.task
        found = await reconcile(tool, task.arguments, self._context(_discard))
        match found:
            case ToolResult():
                return outcome_of(found)
            case DidNotHappen():
                return None
            case DontKnow(why):
                return None if task.effect.may_be_rerun else task_failed(outcome_unknown(why))
            case _:
                assert_never(found)

    def _context(self, emit: Callable[[AgentEvent], None]) -> ToolContext:
        task = self.claimed.task
        return ToolContext(
            run_id=task.run_id,
            thread_id=task.thread_id,
            call_id=task.call_id,
            tool_name=task.tool_name,
            idempotency_key=task.idempotency_key,
            emit=emit,
            redact=self.context.redact,
            agent=self._agent,
            inbox=self._read_messages,
        )

    async def _read_messages(self) -> Sequence[str]:
        pool = self.context.database.pool
        fresh = await background_tasks.read_messages(pool, self.claimed.key, self._read)
        self._read += len(fresh)
        return fresh

    async def release_when_stopping(self) -> None:
        """Release the task to another worker if a rerun is safe or its tool can reconcile; else end it
        with `outcome_unknown`."""
        if self.claimed.task.effect.may_be_rerun or await self._can_reconcile():
            await self._write_with_retries(self._release)
        else:
            await self._finish(task_failed(OUTCOME_UNKNOWN))

    async def _finish(self, outcome: TaskOutcome) -> None:
        async def write() -> None:
            if not await finish_task(self.context.outgoing, self.claimed, outcome):
                log.info("task_already_finished", attempt=self.claimed.task.attempt)

        await self._write_with_retries(write)

    async def _release(self) -> None:
        async with self.context.database.transaction() as connection:
            if await background_tasks.release(connection, self.claimed.key):
                await deliveries.enqueue_task(connection, self.claimed.key)

    async def _write_with_retries(self, write: Callable[[], Awaitable[None]]) -> None:
        """Retry during an outage. After any other error the task stays owned here: `check_owned` finds
        and releases it."""
        while True:
            try:
                await write()
                return
            except DATABASE_UNAVAILABLE:
                await sleep(RETRY_INTERVAL_SECONDS)
            except Exception:
                log.exception("task_result_not_saved")
                return


def _discard(_: AgentEvent) -> None: ...
