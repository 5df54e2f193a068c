"""A run while it executes: its record, agent and state, and how it emits events and is saved."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog

from app.clock import Clock, new_id
from app.domain.checkpoints import (
    Checkpoint,
    CheckpointAnswer,
    CheckpointSaved,
    DecidedConcurrently,
    PendingEvent,
    materialize_output,
)
from app.domain.children.background_tasks import NewTask
from app.domain.events.agent_events import AgentEvent
from app.domain.events.run_events import RunFinish, StateSnapshot
from app.domain.events.step_events import StepEnd
from app.domain.ids import AgentId, CallId, MessageId, TicketKey
from app.domain.json_values import JsonObject
from app.domain.redaction import Redact, unredacted
from app.domain.rules.rules import Rule
from app.domain.runs.limits import RAISED, USED, Used
from app.domain.runs.message_input import inferred_input
from app.domain.runs.pauses import NewPause
from app.domain.runs.rate_limits import RateLimitPolicy
from app.domain.runs.runs import (
    LIFECYCLE,
    Done,
    MessageInput,
    MessageOutput,
    RunRecord,
    Usage,
    Waiting,
)
from app.domain.runs.terminations import status_reason
from app.domain.threads.messages import LoggedMessage, Message
from app.domain.tickets.tickets import Ticket
from app.domain.tools.tool_calls import CallState
from app.runtime.agent import Agents, ResolvedAgent
from app.runtime.cancellation import Interruption
from app.runtime.compaction.compaction import FAILURES, NO_RESULT, Compaction, CompactionResult
from app.runtime.lifecycle import EXECUTING, RunActivity, lifecycle
from app.runtime.ports import (
    CheckpointStore,
    CrashEvidenceReader,
    EventEmitter,
    Inbox,
    NoCrashEvidence,
    NoRememberedRules,
    RememberedRules,
    Tasks,
    TicketAnswers,
)
from app.runtime.state import ChangeBatch, StateScope, StateStore
from app.runtime.usage import UsageMeter

log = structlog.get_logger(__name__)

OWN_EXTENSIONS = frozenset({LIFECYCLE, RAISED, USED})
"""Extensions of a run's state that belong to the runtime; plugins can't use these keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationStart:
    """Where an execution begins: with a new activation, or in one that a lost worker left open."""

    continues: bool = False
    """`run_start` was emitted, and no `run_finish` since."""
    step_begun: bool = False
    """`step_start` of the next step was emitted."""
    calls: Sequence[CallState] = ()
    """Calls of the open step, or of a suspended one."""
    marked_at: Mapping[CallId, datetime] = field(default_factory=dict)
    """When each call without a result was handed to its tool."""
    tickets: Sequence[Ticket] = ()
    """Open tickets, and answered ones that haven't been applied."""


@dataclass(slots=True, kw_only=True)
class ActiveRun:
    """The changing state of one execution. A crash loses only what no checkpoint has saved."""

    record: RunRecord
    agent: ResolvedAgent
    events: EventEmitter
    store: CheckpointStore
    interruption: Interruption
    clock: Clock
    log: list[LoggedMessage]
    next_seq: int
    start: ActivationStart
    answers: TicketAnswers
    inbox: Inbox
    tasks: Tasks
    agents: Agents
    compaction: Compaction = field(default_factory=Compaction)
    remembered: RememberedRules = NoRememberedRules()
    crash_evidence: CrashEvidenceReader = NoCrashEvidence()
    redact: Redact = unredacted
    """Applied to the text of exceptions before it is stored or shown."""
    rate_limits: RateLimitPolicy = RateLimitPolicy()
    thread_state: JsonObject = field(default_factory=dict)
    """The thread's state as it was last stored."""
    state: StateStore = field(default_factory=StateStore)
    in_step: bool = False
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    input: MessageInput | None = field(init=False)
    inferred_input: MessageInput | None = None
    """The inferred input, until a checkpoint writes it to the run's row."""
    output: MessageOutput = field(default_factory=MessageOutput)
    tickets: list[Ticket] = field(default_factory=list)
    """Open tickets, and answered ones that haven't been applied, as of the last read."""
    open_calls: dict[CallId, CallState] = field(default_factory=dict)
    """Calls in the log that have no result yet."""
    unsaved_answer: Message | None = None
    """The model's answer until a checkpoint saves it. If the run ends before, its last checkpoint has it."""
    _remembered: tuple[tuple[int, AgentId], Sequence[Rule]] | None = None
    new_tasks: list[NewTask] = field(default_factory=list)
    """Background tasks that the next commit starts."""
    unread_inputs: int = 0
    open_tasks: int = 0
    is_paused: bool = False
    """The run's row had a pause request at the last commit."""
    new_pause: NewPause | None = None
    """A plugin's pause, which the next commit writes."""
    usage_meter: UsageMeter = field(init=False)
    _started_at: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.steps = self.record.steps
        self.usage = self.record.usage
        self.output = self.record.output
        self.input = self.record.input
        is_recorded = self.input is not None and self.input.range is not None
        # A run with unread inputs records its input when they enter the log.
        if not is_recorded and not self.record.unread_inputs:
            self.input = inferred_input(self.record.request, self.log, self.record.id)
            self.inferred_input = self.input
        self.unread_inputs = self.record.unread_inputs
        self.open_tasks = self.record.open_tasks
        self.is_paused = self.record.pause is not None
        self.usage_meter = UsageMeter(self.record)
        self._started_at = self.clock.now()
        self._restore_state()
        self.tickets = list(self.start.tickets)
        self.open_calls = {
            state.call.id: state for state in self.start.calls if not state.is_answered
        }

    @property
    def step(self) -> int | None:
        """The number of the open step as events show it, counted from 1."""
        return self.steps + 1 if self.in_step else None

    @property
    def step_index(self) -> int:
        """The step that new messages belong to: the open one. Between steps it is the last one, or the
        incomplete step of the open calls."""
        if self.in_step:
            return self.steps
        return max([self.steps - 1, *(state.step_index for state in self.open_calls.values())])

    @property
    def is_fresh(self) -> bool:
        """Whether no checkpoint of the run was saved yet."""
        return self.record.run_state is None

    @property
    def wants_pause(self) -> bool:
        """Whether the run is to be suspended at the next step border."""
        return self.is_paused or self.new_pause is not None

    @property
    def active_seconds(self) -> float:
        """Time spent executing, over all activations."""
        seconds = (self.clock.now() - self._started_at).total_seconds()
        return self.usage_meter.seconds_before + max(0.0, seconds)

    @property
    def used(self) -> Used:
        """How much of its limits the run has used by now."""
        return Used(
            steps=self.steps,
            tokens=self.usage.input_tokens + self.usage.output_tokens,
            tool_calls=self.usage_meter.tool_calls,
            wall_seconds=self.active_seconds,
        )

    async def remembered_rules(self) -> Sequence[Rule]:
        """The rules that people's decisions made, read once for each step and agent."""
        key = (self.steps, self.agent.spec.id)
        if self._remembered is None or self._remembered[0] != key:
            self._remembered = key, await self.remembered.for_calls_of(self.agent.spec.id)
        return self._remembered[1]

    def change_state(self, batch: ChangeBatch) -> None:
        """Apply changes to the state; the next save stores them."""
        for refused in self.state.commit(batch).refused:
            log.warning("state_update_refused", key=refused.change.key.name, reason=refused.reason)

    def emit(self, event: AgentEvent) -> None:
        self.events.emit(event, self.step)

    def new_message_id(self) -> MessageId:
        return MessageId(new_id())

    async def read_inbox(self) -> None:
        """Append the pending inputs to the log, each message once and in order."""
        entered = await self.inbox.enter_log(self.next_seq)
        self.log.extend(entered)
        self.next_seq += len(entered)
        self.unread_inputs = 0

    async def save(
        self,
        messages: Iterable[Message] = (),
        *,
        state: RunActivity = EXECUTING,
        completes_step: bool = False,
        finish: RunFinish | None = None,
        events: Sequence[AgentEvent] = (),
        calls: Sequence[CallState] = (),
        calls_settled: bool = False,
        applied: Sequence[TicketKey] = (),
        opened: Sequence[Ticket] = (),
    ) -> CheckpointAnswer:
        """Commit the run's progress with all events emitted so far.

        `step_end` and `run_finish` are part of the commit. So is a finished summary, if the commit
        completes a step or suspends the run for a rate limit.
        """
        is_timed = isinstance(state, Waiting) and state.until is not None
        summary = self._take_summary(state) if completes_step or is_timed else NO_RESULT
        self.change_state(ChangeBatch(summary.changes))
        usage = self.usage + summary.usage
        entries = [
            LoggedMessage(self.next_seq + offset, message)
            for offset, message in enumerate([*messages, *summary.messages])
        ]
        stamped = materialize_output(
            entries,
            run_id=self.record.id,
            input=self.input,
            previous=self.output,
            step_count=self.step_index + 1,
        )
        steps = self.steps + completes_step
        extensions = self.state.exported(StateScope.RUN)
        thread_state = self.state.exported(StateScope.THREAD)
        run_state = self._run_state(state, steps, extensions)
        pending = [PendingEvent(event, self.step) for event in events]
        if completes_step:
            executing = (
                run_state if state is EXECUTING else self._run_state(EXECUTING, steps, extensions)
            )
            pending.append(PendingEvent(state_snapshot(executing, thread_state), self.step))
            pending.append(PendingEvent(StepEnd(), self.step))
        if finish is not None:
            pending.append(PendingEvent(state_snapshot(run_state, thread_state), None))
            pending.append(PendingEvent(finish, None))
        new_tasks, self.new_tasks = self.new_tasks, []
        answer = await self.store.commit(
            Checkpoint(
                tenant=self.record.tenant,
                thread_id=self.record.thread_id,
                run_id=self.record.id,
                attempt=self.record.attempt,
                next_seq=self.next_seq,
                messages=tuple(entry.message for entry in stamped.messages),
                output=stamped.output,
                inferred_input=self.inferred_input,
                state=state,
                steps=steps,
                usage=usage,
                run_state=run_state,
                thread_state=None if thread_state == self.thread_state else thread_state,
                calls=tuple(calls),
                calls_settled=calls_settled,
                opened=tuple(opened),
                applied=tuple(applied),
                tasks=tuple(new_tasks),
                pending_events=tuple(pending),
                owes_run_end=isinstance(state, Done) and self.agent.is_placeholder,
                parent_run_id=self.record.lineage.parent_run_id,
                pause=self.new_pause,
            )
        )
        if isinstance(answer, CheckpointSaved):
            self.usage = usage
            self.log.extend(stamped.messages)
            self.next_seq += len(entries)
            self.output = stamped.output
            self.inferred_input = None
            self.unsaved_answer = None
            self.new_pause = None
            self.steps = steps
            self.in_step = self.in_step and not completes_step
            self.thread_state = thread_state
            self.state.touch()
            self.tickets = [t for t in (*self.tickets, *opened) if t.id not in applied]
            self._note_calls(calls, calls_settled)
        else:
            self.compaction.put_back(summary)
            self.new_tasks = [*new_tasks, *self.new_tasks]
        if not isinstance(answer, DecidedConcurrently):
            self.unread_inputs, self.open_tasks = answer.unread_inputs, answer.open_tasks
            self.is_paused = answer.is_paused
        return answer

    def _take_summary(self, state: RunActivity) -> CompactionResult:
        if isinstance(state, Waiting):
            return self.compaction.take_before_suspending()
        return self.compaction.take()

    def _note_calls(self, calls: Sequence[CallState], calls_settled: bool) -> None:
        for state in calls:
            if state.is_answered:
                self.open_calls.pop(state.call.id, None)
            else:
                self.open_calls[state.call.id] = state
        if calls_settled:
            self.open_calls.clear()

    def _restore_state(self) -> None:
        self.state = restored_state(self.agent, self.record, self.thread_state)

    def _run_state(self, state: RunActivity, steps: int, extensions: JsonObject) -> dict[str, Any]:
        """The state that the next activation of this run reads."""
        progress = lifecycle(
            self.record,
            state,
            steps=steps,
            active_seconds=self.active_seconds,
            at=self.clock.now(),
            reason=_reason_of(state),
        )
        if self.usage_meter.lost_ms:
            progress["lost_ms"] = self.usage_meter.lost_ms
        return {
            "revision": self.state.snapshot.revision + 1,
            "extensions": {LIFECYCLE: progress, **self.usage_meter.to_state(), **extensions},
        }


def restored_state(agent: ResolvedAgent, record: RunRecord, thread_state: JsonObject) -> StateStore:
    """The last stored state of a run and its thread, read with the agent's state keys."""
    stored = record.run_state or {}
    extensions = {
        name: value
        for name, value in stored.get("extensions", {}).items()
        if name not in OWN_EXTENSIONS
    }
    state = StateStore([*agent.plugins.keys, FAILURES], revision=stored.get("revision", 0))
    state.restore(StateScope.RUN, extensions)
    state.restore(StateScope.THREAD, thread_state)
    return state


def _reason_of(state: RunActivity) -> str | None:
    match state:
        case Waiting(message=message):
            return message
        case Done(termination=termination):
            return status_reason(termination)
        case _:
            return None


def state_snapshot(run_state: JsonObject, thread_state: JsonObject) -> StateSnapshot:
    """The state that clients see: the run's and the thread's together."""
    return StateSnapshot({**run_state, "extensions": {**run_state["extensions"], **thread_state}})
