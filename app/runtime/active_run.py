"""A run while it executes: what it is, what it has, and its ways to speak and be saved."""

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
from app.domain.events.run_events import AgentEvent, RunFinish, StateSnapshot, StepEnd
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
"""What the runtime itself keeps in a run's state, under no key that a plugin can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationStart:
    """Where an execution begins: with a new activation, or in the middle of one that was cut short."""

    continues: bool = False
    """`run_start` has been said, and no `run_finish` since."""
    step_begun: bool = False
    """`step_start` of the step that comes next has been said."""
    calls: Sequence[CallState] = ()
    """Calls of the open step, or of a suspended one."""
    marked_at: Mapping[CallId, datetime] = field(default_factory=dict)
    """When calls that have no result were handed to their tools."""
    tickets: Sequence[Ticket] = ()
    """Open ones, and answered ones that haven't been applied."""


@dataclass(slots=True, kw_only=True)
class ActiveRun:
    """The changing side of one execution. All of it may be lost: the database has what counts."""

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
    traces: CrashEvidenceReader = NoCrashEvidence()
    redact: Redact = unredacted
    """For text of exceptions, before it is stored or shown."""
    rate_limits: RateLimitPolicy = RateLimitPolicy()
    thread_state: JsonObject = field(default_factory=dict)
    """What the thread remembers, as it was last stored."""
    state: StateStore = field(default_factory=StateStore)
    in_step: bool = False
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    input: MessageInput | None = field(init=False)
    inferred_input: MessageInput | None = None
    """The input, until the run's row has it."""
    output: MessageOutput = field(default_factory=MessageOutput)
    tickets: list[Ticket] = field(default_factory=list)
    """Open ones, and answered ones that haven't been applied, as far as is known here."""
    open_calls: dict[CallId, CallState] = field(default_factory=dict)
    """Calls that are in the log and have no result yet."""
    unfinished: Message | None = None
    """What the model has said and nobody has saved: kept by the end, should one come before the next save."""
    _remembered: tuple[tuple[int, AgentId], Sequence[Rule]] | None = None
    starting: list[NewTask] = field(default_factory=list)
    """Tasks that begin with the next commit."""
    unread_inputs: int = 0
    open_tasks: int = 0
    is_paused: bool = False
    """The run's row had a pause request at the last commit."""
    new_pause: NewPause | None = None
    """A plugin's pause, which the next commit writes."""
    usage_meter: UsageMeter = field(init=False)
    _began: datetime = field(init=False)

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
        self._began = self.clock.now()
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
        """The step that messages belong to: the open one; between steps the last one, or that of calls
        which are open in a step that isn't complete."""
        if self.in_step:
            return self.steps
        return max([self.steps - 1, *(state.step_index for state in self.open_calls.values())])

    @property
    def is_fresh(self) -> bool:
        """Nothing of it has been saved yet."""
        return self.record.run_state is None

    @property
    def wants_pause(self) -> bool:
        """Whether the run is to be suspended at the next step border."""
        return self.is_paused or self.new_pause is not None

    @property
    def active_seconds(self) -> float:
        """Time spent executing, over all activations."""
        here = (self.clock.now() - self._began).total_seconds()
        return self.usage_meter.seconds_before + max(0.0, here)

    @property
    def used(self) -> Used:
        """What of its limits the run has used by now."""
        return Used(
            steps=self.steps,
            tokens=self.usage.input_tokens + self.usage.output_tokens,
            tool_calls=self.usage_meter.tool_calls,
            wall_seconds=self.active_seconds,
        )

    async def remembered_rules(self) -> Sequence[Rule]:
        """What people have decided for calls to come: read again in each step and for each agent."""
        at = (self.steps, self.agent.spec.id)
        if self._remembered is None or self._remembered[0] != at:
            self._remembered = at, await self.remembered.for_calls_of(self.agent.spec.id)
        return self._remembered[1]

    def change_state(self, batch: ChangeBatch) -> None:
        """Commit changes of state; they are durable with the next save."""
        for refused in self.state.commit(batch).refused:
            log.warning("state_update_refused", key=refused.change.key.name, reason=refused.reason)

    def emit(self, event: AgentEvent) -> None:
        self.events.emit(event, self.step)

    def new_message_id(self) -> MessageId:
        return MessageId(new_id())

    async def read_inbox(self) -> None:
        """Let what has come in meanwhile enter the log, each message once and in order."""
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
        said: Sequence[AgentEvent] = (),
        calls: Sequence[CallState] = (),
        calls_settled: bool = False,
        applied: Sequence[TicketKey] = (),
        opened: Sequence[Ticket] = (),
    ) -> CheckpointAnswer:
        """Commit where the run stands, together with all that it has said.

        The events that tell of it, `step_end` and `run_finish`, are part of the commit; so is a
        summary that is ready when a step is complete, or when the run waits for a rate limit.
        """
        is_timed = isinstance(state, Waiting) and state.until is not None
        beside = self._taken_from_beside(state) if completes_step or is_timed else NO_RESULT
        self.change_state(ChangeBatch(beside.changes))
        usage = self.usage + beside.usage
        entries = [
            LoggedMessage(self.next_seq + place, message)
            for place, message in enumerate([*messages, *beside.messages])
        ]
        made = materialize_output(
            entries,
            run_id=self.record.id,
            input=self.input,
            previous=self.output,
            step_count=self.step_index + 1,
        )
        steps = self.steps + completes_step
        own = self.state.exported(StateScope.RUN)
        thread_state = self.state.exported(StateScope.THREAD)
        run_state = self._run_state(state, steps, own)
        events = [PendingEvent(event, self.step) for event in said]
        if completes_step:
            executing = run_state if state is EXECUTING else self._run_state(EXECUTING, steps, own)
            events.append(PendingEvent(state_snapshot(executing, thread_state), self.step))
            events.append(PendingEvent(StepEnd(), self.step))
        if finish is not None:
            events.append(PendingEvent(state_snapshot(run_state, thread_state), None))
            events.append(PendingEvent(finish, None))
        starting, self.starting = self.starting, []
        answer = await self.store.commit(
            Checkpoint(
                tenant=self.record.tenant,
                thread_id=self.record.thread_id,
                run_id=self.record.id,
                attempt=self.record.attempt,
                next_seq=self.next_seq,
                messages=tuple(entry.message for entry in made.messages),
                output=made.output,
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
                tasks=tuple(starting),
                pending_events=tuple(events),
                owes_run_end=isinstance(state, Done) and self.agent.is_placeholder,
                parent_run_id=self.record.lineage.parent_run_id,
                pause=self.new_pause,
            )
        )
        if isinstance(answer, CheckpointSaved):
            self.usage = usage
            self.log.extend(made.messages)
            self.next_seq += len(entries)
            self.output = made.output
            self.inferred_input = None
            self.unfinished = None
            self.new_pause = None
            self.steps = steps
            self.in_step = self.in_step and not completes_step
            self.thread_state = thread_state
            self.state.touch()
            self.tickets = [t for t in (*self.tickets, *opened) if t.id not in applied]
            self._note_calls(calls, calls_settled)
        else:
            self.compaction.put_back(beside)
            self.starting = [*starting, *self.starting]
        if not isinstance(answer, DecidedConcurrently):
            self.unread_inputs, self.open_tasks = answer.unread_inputs, answer.open_tasks
            self.is_paused = answer.is_paused
        return answer

    def _taken_from_beside(self, state: RunActivity) -> CompactionResult:
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

    def _run_state(self, state: RunActivity, steps: int, own: JsonObject) -> dict[str, Any]:
        """What continuations of this run find."""
        stands = lifecycle(
            self.record,
            state,
            steps=steps,
            active_seconds=self.active_seconds,
            at=self.clock.now(),
            reason=_reason_of(state),
        )
        if self.usage_meter.lost_ms:
            stands["lost_ms"] = self.usage_meter.lost_ms
        return {
            "revision": self.state.snapshot.revision + 1,
            "extensions": {LIFECYCLE: stands, **self.usage_meter.to_state(), **own},
        }


def restored_state(agent: ResolvedAgent, record: RunRecord, thread_state: JsonObject) -> StateStore:
    """The state of a run and of its thread as it was last stored, under the keys of an agent."""
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
    """What clients see: all of it, whatever its scope."""
    return StateSnapshot({**run_state, "extensions": {**run_state["extensions"], **thread_state}})
