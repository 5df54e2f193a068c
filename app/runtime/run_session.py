"""What a run of a local and of a remote agent share while they execute: log, inbox, events, checkpoints."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct

from app.clock import Clock, new_id
from app.domain.checkpoints import (
    Checkpoint,
    CheckpointAnswer,
    CheckpointSaved,
    DecidedConcurrently,
    PendingEvent,
    materialize_output,
)
from app.domain.events.agent_events import AgentEvent
from app.domain.events.run_events import RunFinish, StateSnapshot
from app.domain.events.step_events import MessageDone, StepEnd, StepStart
from app.domain.ids import CallId, MessageId, TicketKey
from app.domain.json_values import Json, JsonObject
from app.domain.redaction import Redact, unredacted
from app.domain.runs.message_input import inferred_input
from app.domain.runs.runs import (
    Done,
    MessageInput,
    MessageOutput,
    Running,
    RunRecord,
    Usage,
    Waiting,
    status_of,
)
from app.domain.threads.messages import LoggedMessage, Message, logged_message_to_json
from app.domain.tickets.tickets import Ticket
from app.domain.tools.tool_calls import CallState
from app.runtime.cancellation import Interruption
from app.runtime.ports.persistence import CheckpointStore, EventEmitter, Inbox, TicketAnswers

RunActivity: TypeAlias = Running | Waiting | Done
"""The states that a checkpoint may give a run."""
EXECUTING = Running(None)


class ActivationStart(Struct, frozen=True, kw_only=True):
    """Where an execution begins: with a new activation, or in one that a lost worker left open."""

    continues: bool = False
    """`run_start` was emitted, and no `run_finish` since."""
    step_begun: bool = False
    """`step_start` of the next step was emitted."""
    calls: Sequence[CallState] = ()
    """Calls of the open step, or of a suspended one."""
    marked_at: Mapping[CallId, datetime] = {}
    """When each call without a result was handed to its tool."""
    tickets: Sequence[Ticket] = ()
    """Open tickets, and answered ones that haven't been applied."""


@dataclass(slots=True, kw_only=True)
class RunSession:
    """The changing state of one execution. A crash loses only what no checkpoint has saved."""

    record: RunRecord
    events: EventEmitter
    store: CheckpointStore
    interruption: Interruption
    clock: Clock
    log: list[LoggedMessage]
    next_seq: int
    start: ActivationStart
    answers: TicketAnswers
    inbox: Inbox
    redact: Redact = unredacted
    """Applied to the text of exceptions and of a remote's errors, before it is stored or shown."""
    thread_state: JsonObject = field(default_factory=dict)
    """The thread's state as it was last stored."""
    in_step: bool = False
    steps: int = field(init=False)
    input: MessageInput | None = field(init=False)
    inferred_input: MessageInput | None = field(init=False)
    """The inferred input, until a checkpoint writes it to the run's row."""
    output: MessageOutput = field(init=False)
    tickets: list[Ticket] = field(init=False)
    """Open tickets, and answered ones that haven't been applied, as of the last read."""
    unread_inputs: int = field(init=False)
    _answer_id: MessageId | None = field(init=False)
    """The id that `step_start` announced for the step's assistant message."""
    _started_at: datetime = field(init=False)

    def __post_init__(self) -> None:
        record = self.record
        self.steps, self.output, self.input = record.steps, record.output, record.input
        self.inferred_input = self._answer_id = None
        is_recorded = self.input is not None and self.input.range is not None
        # A run with unread inputs records its input when they enter the log.
        if not is_recorded and not record.unread_inputs:
            self.input = self.inferred_input = inferred_input(record.request, self.log, record.id)
        self.unread_inputs = record.unread_inputs
        self.tickets = list(self.start.tickets)
        self._started_at = self.clock.now()

    @property
    def step(self) -> int | None:
        """The number of the open step as events show it, counted from 1."""
        return self.steps + 1 if self.in_step else None

    @property
    def step_index(self) -> int:
        """The step that new messages belong to."""
        return self.steps

    def emit(self, event: AgentEvent) -> None:
        self.events.emit(event, self.step)

    def begin_step(self) -> None:
        self.in_step = True
        self._answer_id = self.new_message_id()
        self.emit(StepStart(self._answer_id))

    def new_message_id(self) -> MessageId:
        return MessageId(new_id())

    def answer_id(self) -> MessageId:
        """The id of the step's assistant message: as announced, unless a lost worker began the step."""
        announced, self._answer_id = self._answer_id, None
        return announced or self.new_message_id()

    def message_done(self, answer: Message, position: int = 0) -> MessageDone:
        """The event of an answer that the next checkpoint appends, after `position` other messages."""
        step_index = self.step_index if self.step_index >= 0 else None
        stamped = answer.produced_by(self.record.id, step_index)
        return MessageDone(logged_message_to_json(LoggedMessage(self.next_seq + position, stamped)))

    async def read_inbox(self) -> None:
        """Append the pending inputs to the log, each message once and in order."""
        entered = await self.inbox.enter_log(self.next_seq)
        self.log.extend(entered)
        self.next_seq += len(entered)
        self.unread_inputs = 0

    def checkpoint(
        self,
        messages: Iterable[Message],
        *,
        state: RunActivity,
        run_state: JsonObject,
        run_state_in_step: JsonObject,
        thread_state: JsonObject,
        usage: Usage,
        completes_step: bool,
        finish: RunFinish | None,
        events: Sequence[AgentEvent],
        applied: Sequence[TicketKey],
        opened: Sequence[Ticket],
    ) -> Checkpoint:
        """The checkpoint that appends the messages. `step_end` and `run_finish` are part of it, each after
        a snapshot of the state: `run_state_in_step` before `step_end`, `run_state` before `run_finish`."""
        record = self.record
        output = materialize_output(
            [LoggedMessage(seq, message) for seq, message in enumerate(messages, self.next_seq)],
            run_id=record.id,
            input=self.input,
            previous=self.output,
            step_count=self.step_index + 1,
        )
        pending = [PendingEvent(event, self.step) for event in events]
        if completes_step:
            snapshot = _state_snapshot(run_state_in_step, thread_state)
            pending += [PendingEvent(snapshot, self.step), PendingEvent(StepEnd(), self.step)]
        if finish is not None:
            snapshot = _state_snapshot(run_state, thread_state)
            pending += [PendingEvent(snapshot, None), PendingEvent(finish, None)]
        return Checkpoint(
            tenant=record.tenant,
            thread_id=record.thread_id,
            run_id=record.id,
            attempt=record.attempt,
            next_seq=self.next_seq,
            messages=tuple(entry.message for entry in output.messages),
            output=output.output,
            inferred_input=self.inferred_input,
            state=state,
            steps=self.steps + completes_step,
            usage=usage,
            run_state=run_state,
            thread_state=None if thread_state == self.thread_state else thread_state,
            opened=tuple(opened),
            applied=tuple(applied),
            pending_events=tuple(pending),
            parent_run_id=record.lineage.parent_run_id,
        )

    async def commit(self, checkpoint: Checkpoint) -> CheckpointAnswer:
        """Commit a checkpoint with all events emitted so far. Only a saved one changes the session."""
        answer = await self.store.commit(checkpoint)
        if isinstance(answer, CheckpointSaved):
            self.log.extend(
                LoggedMessage(seq, message)
                for seq, message in enumerate(checkpoint.messages, self.next_seq)
            )
            self.next_seq += len(checkpoint.messages)
            self.output = checkpoint.output
            self.inferred_input = None
            self.in_step = self.in_step and checkpoint.steps == self.steps
            self.steps = checkpoint.steps
            if checkpoint.thread_state is not None:
                self.thread_state = checkpoint.thread_state
            closed = {*checkpoint.applied, *checkpoint.void}
            self.tickets = [t for t in (*self.tickets, *checkpoint.opened) if t.id not in closed]
        if not isinstance(answer, DecidedConcurrently):
            self.unread_inputs = answer.unread_inputs
        return answer

    def lifecycle(
        self, state: RunActivity, *, steps: int, active_seconds: float, reason: str | None
    ) -> dict[str, Json]:
        """The lifecycle entry in the run's state."""
        entry: dict[str, Json] = {
            "run_id": self.record.id,
            "status": status_of(state).value,
            "step_count": steps,
            "active_ms": round(active_seconds * 1000),
            "updated_at": round(self.clock.now().timestamp() * 1000),
        }
        if reason is not None:
            entry["status_reason"] = reason
        return entry


def _state_snapshot(run_state: JsonObject, thread_state: JsonObject) -> StateSnapshot:
    """The state that clients see: the run's and the thread's together."""
    return StateSnapshot({**run_state, "extensions": {**run_state["extensions"], **thread_state}})
