"""One background task on this worker: its tool is run, and what came of it is written down.

What a task's worker leaves behind when it is lost its tool may be able to say; else its effect decides:
what may be run again is, of the rest the outcome is unknown.
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
from app.domain.events.run_events import AgentEvent
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
    """What every task works with."""

    database: Database
    outgoing: EventTransactions
    agents: AgentRegistry
    redact: Redact = unredacted


@dataclass(slots=True)
class TaskExecution:
    """One claimed task on this worker, from the claim to its end."""

    context: TaskContext
    claimed: ClaimedTask
    interruption: Interruption = field(default_factory=Interruption)
    since: float = 0.0
    """When it was begun here, by the loop's time."""
    _read: int = 0
    _agent: AgentSpec | None = None

    async def run(self) -> None:
        """Run the tool and write what came of it; never raises but for cancellation."""
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
            log.warning("task_broken_off", error=repr(error))
            await self.release_when_stopping()
            return
        except Exception:
            log.exception("task_failed")
            outcome = task_failed("Something broke on our side; the logs say what.")
        await self._end(outcome)

    async def _outcome(self) -> TaskOutcome:
        task = self.claimed.task
        if task.losses > MAX_LOSSES:
            # Nothing of it is touched again: to ask its tool may be what kills.
            return task_failed(f"{task.losses} workers were lost over this task")
        tool = await self._tool()
        if self.claimed.was_begun:
            asked = None if isinstance(tool, TaskOutcome) else tool
            if (known := await self._left_behind(asked)) is not None:
                return known
        if isinstance(tool, TaskOutcome):
            return tool
        voice = TaskEmitter(self.context.outgoing, self.claimed)
        context = replace(self._context(voice.emit), wait_for_capacity=voice.wait_for_capacity)
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(voice.run())
            try:
                result = await tool.execute(dict(task.arguments), context)
            except Exception as error:  # whoever wrote the tool
                log.warning("tool_raised", tool=task.tool_name, exc_info=True)
                result = ToolResult.error(
                    task.tool_name, f"Execution failed: {context.redact(str(error))}"
                )
            showing.cancel()
        await voice.emit_pending()
        return outcome_of(result)

    async def _tool(self) -> Tool | TaskOutcome:
        """The tool of the agent's version that began the task, or the end when it isn't to be had."""
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

    async def _left_behind(self, tool: Tool | None) -> TaskOutcome | None:
        """What came of the task on a worker that left it; None when it is to be run again."""
        task = self.claimed.task
        found = await reconcile(tool, task.arguments, self._context(_unheard))
        match found:
            case ToolResult():
                return outcome_of(found)
            case DidNotHappen():
                return None
            case DontKnow(why):
                return None if task.effect.may_be_rerun else task_failed(outcome_unknown(why))
            case _:
                assert_never(found)

    def _context(self, say: Callable[[AgentEvent], None]) -> ToolContext:
        task = self.claimed.task
        return ToolContext(
            run_id=task.run_id,
            thread_id=task.thread_id,
            call_id=task.call_id,
            tool_name=task.tool_name,
            idempotency_key=task.idempotency_key,
            emit=say,
            redact=self.context.redact,
            agent=self._agent,
            inbox=self._messages,
        )

    async def _messages(self) -> Sequence[str]:
        pool = self.context.database.pool
        fresh = await background_tasks.read_messages(pool, self.claimed.key, self._read)
        self._read += len(fresh)
        return fresh

    async def release_when_stopping(self) -> None:
        """Nobody goes on with it here: another worker may, if trying again is safe, or its tool can say
        what was done."""
        if self.claimed.task.effect.may_be_rerun or await self._can_reconcile():
            await self._until_written(self._release)
        else:
            await self._end(task_failed(OUTCOME_UNKNOWN))

    async def _end(self, outcome: TaskOutcome) -> None:
        async def write() -> None:
            if not await finish_task(self.context.outgoing, self.claimed, outcome):
                log.info("task_was_over", attempt=self.claimed.task.attempt)

        await self._until_written(write)

    async def _release(self) -> None:
        async with self.context.database.transaction() as connection:
            if await background_tasks.release(connection, self.claimed.key):
                await deliveries.enqueue_task(connection, self.claimed.key)

    async def _until_written(self, write: Callable[[], Awaitable[None]]) -> None:
        """Outages are waited for. What can't be written at all is found by `look`, and by its loss."""
        while True:
            try:
                await write()
                return
            except DATABASE_UNAVAILABLE:
                await sleep(RETRY_INTERVAL_SECONDS)
            except Exception:
                log.exception("task_not_written")
                return


def _unheard(_: AgentEvent) -> None: ...
