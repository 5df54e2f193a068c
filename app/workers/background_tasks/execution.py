"""One background task on this worker: its tool is run and its result is saved.

If a worker dies while it runs a task, the tool's reconciler is asked. Without one, a task whose effect
allows it is rerun, and any other ends with `outcome_unknown`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import structlog
from msgspec import Struct

from app.agents.registry import AgentRegistry
from app.commands.followups.background_tasks import finish_task
from app.commands.memories.kept_memory import DEFAULT_RULES, MemoryRules
from app.commands.tool_owner import ToolOwner
from app.domain.agents.specs import AgentSpec
from app.domain.children.background_tasks import (
    OUTCOME_UNKNOWN,
    TaskOutcome,
    outcome_of,
    outcome_unknown,
    task_failed,
)
from app.domain.deps import NO_DEPS, Deps
from app.domain.errors import OutcomeUnknown
from app.domain.events.agent_events import AgentEvent
from app.domain.files.files import DEFAULT_MAX_FILE_BYTES
from app.domain.memories.memories import MemoryPolicy, owner_for
from app.domain.redaction import Redact, unredacted
from app.domain.runs.run_info import RunInfo, run_info
from app.domain.structs import replace
from app.domain.tools.reconciliation import DidNotHappen, DontKnow
from app.domain.tools.tool_calls import ToolResult
from app.events.transaction import EventTransactions
from app.runtime.agent import ResolvedAgent, UnknownAgentVersion
from app.runtime.cancellation import Interrupted, Interruption, InterruptReason
from app.runtime.ports.memory import Memory
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Tool
from app.runtime.tool_calls.interrupted import can_reconcile, reconcile
from app.storage.children import background_tasks
from app.storage.children.background_tasks import ClaimedTask
from app.storage.files.chunk_stores import ChunkStore
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.postgres.retrying import retry_while_unavailable
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.tools.mcp.oauth.token_store import Holder
from app.tools.mcp.servers import NO_SERVERS, AgentsWithMcpTools, McpServers
from app.workers.background_tasks.activity import TaskEmitter
from app.workers.files.tool_files import StoredToolFiles
from app.workers.liveness.poison_guard import MAX_LOSSES
from app.workers.tool_memory import StoredMemories

log = structlog.get_logger(__name__)


class TaskContext(Struct, frozen=True, kw_only=True):
    """What every execution of a task works with; built once by the composition root."""

    database: Database
    outgoing: EventTransactions
    agents: AgentRegistry
    redact: Redact = unredacted
    mcp: McpServers = NO_SERVERS
    max_file_bytes: int = DEFAULT_MAX_FILE_BYTES
    memory: MemoryRules = DEFAULT_RULES
    chunks: ChunkStore | None = None
    """Where the bytes of new files go, if not to the database."""


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
    _deps: Deps = NO_DEPS
    _memory_policy: MemoryPolicy | None = None

    async def run(self) -> None:
        """Run the tool and save its result. Raises only cancellation."""
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
            else:
                self._log_lost_result()
            return
        except DATABASE_UNAVAILABLE as error:
            log.warning("task_interrupted_by_outage", error=repr(error))
            await self.release_when_stopping()
            return
        except Exception:
            log.exception("task_failed")
            outcome = task_failed("An internal error occurred. The server's log has the details.")
        await self._finish(outcome)

    async def _outcome(self) -> TaskOutcome:
        task = self.claimed.task
        if task.losses > MAX_LOSSES:
            # The tool isn't asked to reconcile, because that may kill the worker.
            return task_failed(f"{task.losses} workers were lost over this task")
        run = await self._run_info()
        if run is None:
            return task_failed("its run was deleted")
        tool = await self._tool(run)
        if self.claimed.was_begun:
            reconciler = None if isinstance(tool, TaskOutcome) else tool
            if (known := await self._reconcile(reconciler, run)) is not None:
                return known
        if isinstance(tool, TaskOutcome):
            return tool
        emitter = TaskEmitter(self.context.outgoing, self.claimed)
        context = replace(
            self._context(run, emitter.emit),
            wait_for_capacity=emitter.wait_for_capacity,
            files=self._files(),
            memories=self._memory(run),
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(emitter.run())
            try:
                result = await tool.execute(dict(task.arguments), context)
            except OutcomeUnknown as error:
                result = ToolResult.error(task.tool_name, f"task outcome unknown: {error}")
            except Exception as error:  # the tool is the user's code
                log.warning("tool_failed", tool=task.tool_name, exc_info=True)
                result = ToolResult.error(
                    task.tool_name, f"Execution failed: {context.redact(str(error))}"
                )
            emitter.end()
        return outcome_of(result)

    async def _tool(self, run: RunInfo | None) -> Tool | TaskOutcome:
        """The tool of the agent version that started the task, or a failure if it isn't available."""
        task = self.claimed.task
        agents = AgentsWithMcpTools(
            self.context.agents.for_tenant(self.claimed.tenant),
            self.context.mcp,
            None if run is None else Holder(run.tenant, run.started_by),
        )
        agent = await agents.at_version(task.agent_id, task.agent_version)
        if isinstance(agent, UnknownAgentVersion):
            return task_failed(agent.reason)
        self._agent = agent.spec
        if isinstance(agent, ResolvedAgent):
            self._deps = agent.deps
            self._memory_policy = agent.plugins.memory
        tool = agent.tools.get(task.tool_name)
        return tool or task_failed(f"there is no tool {task.tool_name!r} any more")

    async def _run_info(self) -> RunInfo | None:
        async with self.context.database.reading_by_key() as connection:
            record = await runs.get(connection, self.claimed.tenant, self.claimed.task.run_id)
        return None if record is None else run_info(record)

    async def _can_reconcile(self) -> bool:
        tool = await self._tool(None)
        return not isinstance(tool, TaskOutcome) and can_reconcile(tool)

    async def _reconcile(self, tool: Tool | None, run: RunInfo) -> TaskOutcome | None:
        """The outcome of a task that a lost worker had started; None if it must be run again."""
        task = self.claimed.task
        found = await reconcile(tool, task.arguments, self._context(run, _discard))
        match found:
            case ToolResult():
                return outcome_of(found)
            case DidNotHappen():
                return None
            case DontKnow(why):
                return None if task.effect.may_be_rerun else task_failed(outcome_unknown(why))
            case _:
                assert_never(found)

    def _context(self, run: RunInfo, emit: Callable[[AgentEvent], None]) -> ToolContext:
        task = self.claimed.task
        return ToolContext(
            run=run,
            call_id=task.call_id,
            tool_name=task.tool_name,
            idempotency_key=task.idempotency_key,
            emit=emit,
            redact=self.context.redact,
            agent=self._agent,
            deps=self._deps,
            inbox=self._read_messages,
        )

    def _files(self) -> StoredToolFiles:
        context, owner = self.context, self._tool_owner()
        return StoredToolFiles(
            context.database, context.outgoing, owner, context.max_file_bytes, context.chunks
        )

    def _memory(self, run: RunInfo) -> Memory | None:
        task, policy = self.claimed.task, self._memory_policy
        if policy is None:
            return None
        store = StoredMemories(self.context.database, self._tool_owner(), self.context.memory)
        owner = owner_for(policy, run, task.agent_id)
        return Memory(store, owner, task.agent_id, task.idempotency_key)

    def _tool_owner(self) -> ToolOwner:
        claimed, task = self.claimed, self.claimed.task
        return ToolOwner(claimed.tenant, task.run_id, task.thread_id, claimed.key)

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
                self._log_lost_result()

        await self._write_with_retries(write)

    def _log_lost_result(self) -> None:
        log.info("task_already_finished", attempt=self.claimed.task.attempt)

    async def _release(self) -> None:
        async with self.context.database.transaction() as connection:
            if await background_tasks.release(connection, self.claimed.key):
                await deliveries.enqueue_task(connection, self.claimed.key)

    async def _write_with_retries(self, write: Callable[[], Awaitable[None]]) -> None:
        """Retry during an outage. After any other error the task stays owned here: `check_owned` finds
        and releases it."""
        try:
            await retry_while_unavailable(write)
        except Exception:
            log.exception("task_result_not_saved")


def _discard(_: AgentEvent) -> None: ...
