"""A run while it executes: what it is, what it has, and its ways to speak and be saved."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from app.clock import Clock, new_id
from app.domain.checkpoints import (
    Checkpoint,
    CheckpointAnswer,
    DecidedMeanwhile,
    Said,
    Saved,
    materialize_output,
)
from app.domain.events import AgentEvent, RunFinish, StateSnapshot, StepEnd
from app.domain.ids import CallId, MessageId, TicketKey
from app.domain.messages import LoggedMessage, Message
from app.domain.runs import (
    Done,
    MessageOutput,
    Running,
    RunRecord,
    Usage,
    Waiting,
    status_of,
    status_reason,
)
from app.domain.tasks import NewTask
from app.domain.tickets import Ticket
from app.domain.tool_calls import CallState
from app.runtime.agent import ResolvedAgent
from app.runtime.cancellation import Interruption
from app.runtime.ports import Answers, CheckpointStore, Inbox, LiveEvents, Tasks

Standing: TypeAlias = Running | Waiting | Done
EXECUTING = Running(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
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
    events: LiveEvents
    store: CheckpointStore
    interruption: Interruption
    clock: Clock
    log: list[LoggedMessage]
    next_seq: int
    start: Start
    answers: Answers
    inbox: Inbox
    tasks: Tasks
    in_step: bool = False
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    output: MessageOutput = field(default_factory=MessageOutput)
    revision: int = 0
    tickets: list[Ticket] = field(default_factory=list)
    """Open ones, and answered ones that haven't been applied, as far as is known here."""
    open_calls: dict[CallId, CallState] = field(default_factory=dict)
    """Calls that are in the log and have no result yet."""
    starting: list[NewTask] = field(default_factory=list)
    """Tasks that begin with the next commit."""
    unread_inputs: int = 0
    open_tasks: int = 0

    def __post_init__(self) -> None:
        self.steps = self.record.steps
        self.usage = self.record.usage
        self.output = self.record.output
        self.revision = (self.record.run_state or {}).get("revision", 0)
        self.unread_inputs = self.record.unread_inputs
        self.open_tasks = self.record.open_tasks
        self.tickets = list(self.start.tickets)
        self.open_calls = {
            state.call.id: state for state in self.start.calls if not state.status.is_final
        }

    @property
    def step(self) -> int | None:
        """The number of the open step as events show it, counted from 1."""
        return self.steps + 1 if self.in_step else None

    @property
    def step_index(self) -> int:
        """The step that messages belong to: the open one, between steps the last one."""
        return self.steps if self.in_step else self.steps - 1

    def say(self, event: AgentEvent) -> None:
        self.events.say(event, self.step)

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
        state: Standing = EXECUTING,
        completes_step: bool = False,
        finish: RunFinish | None = None,
        said: Sequence[AgentEvent] = (),
        calls: Sequence[CallState] = (),
        calls_settled: bool = False,
        applied: Sequence[TicketKey] = (),
        opened: Sequence[Ticket] = (),
    ) -> CheckpointAnswer:
        """Commit where the run stands, together with all that it has said.

        The events that tell of it, `step_end` and `run_finish`, are part of the commit.
        """
        entries = [LoggedMessage(self.next_seq + place, m) for place, m in enumerate(messages)]
        made = materialize_output(
            entries,
            run_id=self.record.id,
            input=self.record.input,
            previous=self.output,
            step_count=self.step_index + 1,
        )
        steps = self.steps + completes_step
        events = [Said(event, self.step) for event in said]
        if completes_step:
            events.append(Said(StateSnapshot(self._state(EXECUTING, steps)), self.step))
            events.append(Said(StepEnd(), self.step))
        if finish is not None:
            events.append(Said(StateSnapshot(self._state(state, steps)), None))
            events.append(Said(finish, None))
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
                state=state,
                steps=steps,
                usage=self.usage,
                run_state=self._state(state, steps),
                calls=tuple(calls),
                calls_settled=calls_settled,
                opened=tuple(opened),
                applied=tuple(applied),
                tasks=tuple(starting),
                said=tuple(events),
            )
        )
        if isinstance(answer, Saved):
            self.log.extend(made.messages)
            self.next_seq += len(entries)
            self.output = made.output
            self.steps = steps
            self.in_step = self.in_step and not completes_step
            self.revision += 1
            self.tickets = [t for t in (*self.tickets, *opened) if t.key not in applied]
            self._note_calls(calls, calls_settled)
        else:
            self.starting = [*starting, *self.starting]
        if not isinstance(answer, DecidedMeanwhile):
            self.unread_inputs, self.open_tasks = answer.unread_inputs, answer.open_tasks
        return answer

    def _note_calls(self, calls: Sequence[CallState], calls_settled: bool) -> None:
        for state in calls:
            if state.status.is_final:
                self.open_calls.pop(state.call.id, None)
            else:
                self.open_calls[state.call.id] = state
        if calls_settled:
            self.open_calls.clear()

    def _state(self, state: Standing, steps: int) -> dict[str, Any]:
        """The state as clients see it and continuations find it; so far the lifecycle alone."""
        lifecycle: dict[str, Any] = {
            "run_id": self.record.id,
            "status": status_of(state).value,
            "step_count": steps,
        }
        if isinstance(state, Waiting):
            lifecycle["status_reason"] = state.message
        elif isinstance(state, Done):
            lifecycle["status_reason"] = status_reason(state.termination)
        return {
            "revision": self.revision + 1,
            "extensions": {"__runtime.run_lifecycle": lifecycle},
        }
