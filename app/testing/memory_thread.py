"""One thread in memory, with the commands that clients and workers have for it.

Tests that need thousands of executions a second use it in place of the tables.
`tests/machine/test_memory_and_postgres.py` compares the two.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from app.clock import new_id
from app.domain.agents.specs import AgentSpec
from app.domain.checkpoints import Checkpoint, CheckpointAnswer, CheckpointSaved
from app.domain.children.background_tasks import TaskStatus
from app.domain.claims.claimed_run import ClaimedRun
from app.domain.errors import InferenceFailed, PluginFailed
from app.domain.events.input_events import InputDelivered
from app.domain.events.run_events import CancelRequested, RunCreated, RunStart
from app.domain.events.ticket_events import TicketDecided
from app.domain.ids import MessageId, RunId, TaskId, ThreadId, WorkerId
from app.domain.json_values import Json, JsonObject
from app.domain.principals import DEFAULT_TENANT
from app.domain.runs.identity import run_identity
from app.domain.runs.runs import (
    Created,
    Lineage,
    MessageInput,
    MessageOutput,
    Running,
    RunRecord,
    RunStatus,
    Usage,
    Waiting,
)
from app.domain.runs.terminations import Cancelled
from app.domain.structs import replace
from app.domain.threads.messages import LoggedMessage, Message, MessageRange, Role, Text
from app.domain.tickets.decisions import Decision, DecisionAnswer, derived_decision_id
from app.domain.tickets.tickets import Ticket, TicketStatus
from app.runtime.active_run import ActiveRun
from app.runtime.agent import Agents, ResolvedAgent
from app.runtime.cancellation import Interruption
from app.runtime.ended.idle_end import IdleRun, end_idle_run
from app.runtime.endings import Ending, HandedOver, fail
from app.runtime.loop import advance
from app.runtime.run_session import ActivationStart
from app.testing.journal import MemoryJournal
from app.testing.thread_rows import ThreadRows
from app.testing.tool_files import MemoryFiles, MemoryToolFiles
from app.testing.tool_memory import MemoriesInMemory, MemoriesOfThread


class _EmptyInbox:
    """Runs in memory get no messages while they execute, and have no background tasks."""

    async def enter_log(self, next_seq: int) -> Sequence[LoggedMessage]:
        return ()

    async def cancel(self, task_id: TaskId) -> TaskStatus | None:
        return None

    async def send(self, task_id: TaskId, text: str, key: str) -> TaskStatus | None:
        return None


_EMPTY_INBOX = _EmptyInbox()


class MemoryThread(ThreadRows):
    """One thread and its runs, one after the other."""

    def __init__(
        self, spec: AgentSpec, *, subject: str, memories: Mapping[str, Json] | None = None
    ) -> None:
        super().__init__(ThreadId(new_id()))
        self.spec = spec
        self.subject = subject
        self.inputs: list[Message] = []
        self.files = MemoryFiles(self)
        self.memories = MemoriesOfThread(self, memories or {})

    # --- commands -------------------------------------------------------------------------------

    async def start(
        self,
        *,
        here: bool,
        text: str = "go",
        metadata: JsonObject | None = None,
        request: JsonObject | None = None,
    ) -> ClaimedRun | None:
        """Create a run with one user message; with `here`, claim it in the same command."""
        message = Message(id=MessageId(new_id()), role=Role.USER, content=(Text(text),))
        run_id, now = RunId(new_id()), self.clock.now()
        self.tickets, self.calls, self.inputs = {}, {}, [message]
        self.record = RunRecord(
            tenant=DEFAULT_TENANT,
            id=run_id,
            thread_id=self.thread_id,
            agent_id=self.spec.id,
            agent_version=self.spec.version,
            state=Created(True),
            lineage=Lineage(run_id),
            request=request or {},
            input=None,
            output=MessageOutput(),
            steps=0,
            usage=Usage(),
            run_state=None,
            metadata=metadata or {},
            started_by=self.subject,
            attempt=0,
            dispatch_id=None,
            losses=0,
            cancel_requested_at=None,
            created_at=now,
            started_at=None,
            updated_at=now,
            events_from=len(self.events) + 1,
        )
        status = RunStatus.RUNNING if here else RunStatus.CREATED
        self.emit(RunCreated(self.spec.id, status.value, 0, [message.id]))
        if not here:
            return None
        claimed = await self.claim(has_waited=False)
        assert claimed is not None
        self.emit(RunStart(run_identity(self.record)))
        return replace(claimed, is_announced=True)

    async def claim(self, *, has_waited: bool = True) -> ClaimedRun | None:
        """Claim the run, and append its pending messages to the log."""
        record = self.record
        if record.is_done:
            return None
        is_lost = isinstance(record.state, Running) and record.state.owner is not None
        input = record.input
        if self.inputs:
            first, ids = len(self.log) + 1, tuple(one.id for one in self.inputs)
            self.append(self.inputs)
            if has_waited:
                for seq, message in enumerate(self.inputs, first):
                    self.emit(InputDelivered(new_id(), message.id, seq))
            self.inputs = []
            input = MessageInput(MessageRange.of(first, len(self.log)), ids)
        self.record = replace(
            record,
            state=Running(WorkerId(new_id())),
            attempt=record.attempt + 1,
            losses=record.losses + is_lost,
            input=input,
        )
        return ClaimedRun(
            record=self.record,
            next_seq=len(self.log) + 1,
            previous_state=record.status,
            thread_state=self.thread_state,
        )

    async def release(self, attempt: int) -> None:
        if self.record.attempt == attempt and isinstance(self.record.state, Running):
            self.record = replace(self.record, state=Running(None))

    async def decide(self, ticket: Ticket, answer: DecisionAnswer) -> None:
        assert self.tickets[ticket.id].status is TicketStatus.OPEN
        now = self.clock.now()
        decision_id = derived_decision_id(ticket.id, answer, self.subject)
        decision = Decision(decision_id=decision_id, answer=answer, subject=self.subject, at=now)
        self.tickets[ticket.id] = replace(
            ticket, status=TicketStatus.DECIDED, decision=decision, updated_at=now
        )
        self.emit(
            TicketDecided(
                ticket.id,
                decision_id,
                answer.action.value,
                self.subject,
                answer.reason,
            )
        )

    async def cancel(self, reason: str | None) -> None:
        record = self.record
        if record.is_done:
            return
        if record.cancel_requested_at is None:
            self.record = replace(record, cancel_requested_at=self.clock.now())
            self.emit(CancelRequested(self.subject, reason))
        if isinstance(record.state, Created | Waiting):
            await self._end_idle(reason)

    async def _end_idle(self, reason: str | None) -> None:
        calls = sorted(self.calls.values(), key=lambda each: each[0].position)
        own = [one for one in self.log if one.message.run_id == self.record.id]
        answers = [one for one in own if one.message.role is Role.ASSISTANT and one.message.text]
        self.inputs = []
        idle = IdleRun(
            record=self.record,
            next_seq=len(self.log) + 1,
            last_text=answers[-1] if answers else None,
            thread_state=self.thread_state,
            clock=self.clock,
            calls=[state for state, _ in calls],
            answered=[one.id for one in self.unsettled() if one.decision is not None],
        )
        await end_idle_run(idle, _IdleEndStore(self), Cancelled(reason))

    # --- executing ------------------------------------------------------------------------------

    def active_run(
        self,
        claimed: ClaimedRun,
        agent: ResolvedAgent,
        agents: Agents,
        interruption: Interruption,
        journal: MemoryJournal,
    ) -> ActiveRun:
        """The claimed run as the loop needs it."""
        return ActiveRun(
            record=claimed.record,
            agent=agent,
            events=journal,
            store=journal,
            interruption=interruption,
            clock=self.clock,
            log=list(self.log),
            next_seq=claimed.next_seq,
            start=self._activation_start(claimed),
            answers=journal,
            inbox=_EMPTY_INBOX,
            tasks=_EMPTY_INBOX,
            agents=agents,
            tool_files=MemoryToolFiles(self, self.files, claimed.record.attempt),
            memories=MemoriesInMemory(self.memories, claimed.record.attempt),
            thread_state=claimed.thread_state,
        )

    def _activation_start(self, claimed: ClaimedRun) -> ActivationStart:
        record = claimed.record
        if record.attempt == 1:
            return ActivationStart(continues=claimed.is_announced)
        is_open, begun_step = self.step_progress()
        calls = sorted(self.calls.values(), key=lambda kept: kept[0].position)
        return ActivationStart(
            continues=claimed.previous_state is RunStatus.RUNNING and is_open,
            step_begun=begun_step == record.steps + 1,
            calls=[state for state, _ in calls],
            marked_at={state.call.id: at for state, at in calls if at is not None},
            tickets=self.unsettled(),
        )

    async def advance(self, run: ActiveRun) -> Ending:
        """Execute the run. Errors of its model and its plugins end it, as on a server."""
        try:
            ending = await advance(run)
        except InferenceFailed as error:
            return await fail(run, error.kind, error.detail)
        except PluginFailed as error:
            return await fail(run, "plugin_failed", str(error))
        if isinstance(ending, HandedOver):
            await self.release(run.record.attempt)
        return ending


class _IdleEndStore(Struct, frozen=True):
    """Writes an end while no worker executes the run."""

    rows: ThreadRows

    async def commit(self, checkpoint: Checkpoint) -> CheckpointAnswer:
        record = self.rows.record
        assert record.attempt == checkpoint.attempt
        assert isinstance(record.state, Created | Waiting)
        self.rows.write(checkpoint)
        self.rows.log_events(checkpoint.pending_events)
        return CheckpointSaved()
