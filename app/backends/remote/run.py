"""A run of a remote agent while it executes: what it has, and its ways to speak and be saved."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.clock import Clock, new_id
from app.domain.agents.backend_results import (
    NO_OUTPUT,
    OUTPUT_KEY,
    BackendOutput,
    output_from_json,
    output_to_json,
)
from app.domain.agents.specs import AgentSpec
from app.domain.checkpoints import (
    Checkpoint,
    CheckpointAnswer,
    CheckpointSaved,
    DecidedConcurrently,
    PendingEvent,
    materialize_output,
)
from app.domain.events.run_events import AgentEvent, RunFinish, StepEnd
from app.domain.ids import MessageId, RunId, TicketKey
from app.domain.json_values import Json, JsonObject
from app.domain.redaction import Redact, unredacted
from app.domain.runs.message_input import inferred_input
from app.domain.runs.runs import LIFECYCLE, Done, MessageInput, MessageOutput, RunRecord
from app.domain.threads.messages import LoggedMessage, Message
from app.domain.tickets.tickets import Ticket
from app.runtime.active_run import ActivationStart, state_snapshot
from app.runtime.cancellation import Interruption
from app.runtime.handoff import with_agent_at_work
from app.runtime.lifecycle import EXECUTING, RunActivity, lifecycle
from app.runtime.ports import CheckpointStore, EventEmitter, Inbox, TicketAnswers

REMOTE = "__runtime_remote_backend"
CONTEXTS = "__runtime.remote_contexts"
"""What the thread remembers of its remotes: a later run may continue there."""


def turn_key(run_id: RunId, steps: int) -> str:
    """Names the turn after so many steps, whoever tries it and how often."""
    return f"{run_id}:{steps + 1}"


@dataclass(frozen=True, slots=True)
class StartedTurn:
    """A turn that the remote may be at: under which key, and what finds it, once that is known."""

    key: str
    binding: JsonObject | None


def accepted_turn(record: RunRecord) -> StartedTurn | None:
    """The newest turn of a run that its remote has accepted."""
    remote = _kept_of(record)
    if remote.get("turn") is None:
        return None
    return StartedTurn(remote["turn"], _binding_in(remote))


def started_turn(record: RunRecord) -> StartedTurn | None:
    """The turn that was under way when the run ended, or else the last one that was accepted. One that was
    begun and not accepted may have got to the remote all the same."""
    accepted, begun = accepted_turn(record), _kept_of(record).get("begun")
    if begun is None:
        return accepted
    return StartedTurn(begun, None if accepted is None else accepted.binding)


def is_remote(record: RunRecord) -> bool:
    """Whether a remote agent has executed the run before."""
    return bool(_kept_of(record))


def made_before(record: RunRecord) -> BackendOutput:
    """What the last turn has made, as the run's state keeps it."""
    extensions: JsonObject = (record.run_state or {}).get("extensions", {})
    kept = extensions.get(OUTPUT_KEY)
    return NO_OUTPUT if kept is None else output_from_json(kept)


def target_in(record: RunRecord) -> str:
    """What the run's state calls its remote; empty before the remote has accepted a turn."""
    return next(iter(_kept_of(record).get("targets", {})), "")


def _kept_of(record: RunRecord) -> JsonObject:
    kept: JsonObject = (record.run_state or {}).get("extensions", {}).get(REMOTE, {})
    return kept


def _binding_in(remote: JsonObject) -> JsonObject | None:
    return next(iter(remote.get("targets", {}).values()), None)


@dataclass(slots=True, kw_only=True)
class RemoteRun:
    """The changing side of one execution. All of it may be lost: the database has what counts."""

    record: RunRecord
    spec: AgentSpec
    target: str
    """What the remote is called in the state: the same after a restart."""
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
    """For text of exceptions and of the remote's errors, before it is stored or shown."""
    thread_state: JsonObject = field(default_factory=dict)
    steps: int = 0
    in_step: bool = False
    input: MessageInput | None = field(init=False)
    inferred_input: MessageInput | None = None
    """The input, until the run's row has it."""
    output: MessageOutput = field(default_factory=MessageOutput)
    tickets: list[Ticket] = field(default_factory=list)
    unread_inputs: int = 0
    new_messages: BackendOutput = NO_OUTPUT
    saved_events: int = 0
    """The end of the log as far as the remote knows it."""
    turn: str | None = None
    """The turn that the remote has accepted last."""
    binding: JsonObject | None = None
    answers_in_turn: list[Message] = field(default_factory=list)
    """What people have answered the remote in the open turn; the log gets it with the turn's end."""
    streamed: list[str] = field(default_factory=list)
    """Pieces of text that the open turn has streamed, and no `stream_reset` has voided."""
    _revision: int = 0
    _active_before: float = 0.0
    _began: datetime = field(init=False)

    def __post_init__(self) -> None:
        record = self.record
        self.steps, self.output = record.steps, record.output
        self.input = record.input
        is_recorded = self.input is not None and self.input.range is not None
        # A run with unread inputs records its input when they enter the log.
        if not is_recorded and not record.unread_inputs:
            self.input = inferred_input(record.request, self.log, record.id)
            self.inferred_input = self.input
        self.unread_inputs = record.unread_inputs
        self.tickets = list(self.start.tickets)
        self._began = self.clock.now()
        stored = record.run_state or {}
        self._revision = stored.get("revision", 0)
        kept = stored.get("extensions", {})
        self._active_before = kept.get(LIFECYCLE, {}).get("active_ms", 0) / 1000
        remote = kept.get(REMOTE, {})
        self.turn, self.saved_events = remote.get("turn"), remote.get("told", self._nothing_told())
        contexts = remote.get("targets") or self.thread_state.get(CONTEXTS) or {}
        self.binding = contexts.get(self.target)

    def _nothing_told(self) -> int:
        """A new run is about its input; what was said on the thread before isn't news."""
        consumed = self.input
        return 0 if consumed is None or consumed.range is None else consumed.range.from_seq - 1

    @property
    def turn_key(self) -> str:
        """The turn that comes next or is under way."""
        return turn_key(self.record.id, self.steps)

    @property
    def step(self) -> int | None:
        return self.steps + 1 if self.in_step else None

    def emit(self, event: AgentEvent) -> None:
        self.events.emit(event, self.step)

    def new_message_id(self) -> MessageId:
        return MessageId(new_id())

    async def read_inbox(self) -> None:
        entered = await self.inbox.enter_log(self.next_seq)
        self.log.extend(entered)
        self.next_seq += len(entered)
        self.unread_inputs = 0

    async def save(
        self,
        messages: Sequence[Message] = (),
        *,
        state: RunActivity = EXECUTING,
        reason: str | None = None,
        completes_step: bool = False,
        finish: RunFinish | None = None,
        said: Sequence[AgentEvent] = (),
        applied: Sequence[TicketKey] = (),
        opened: Sequence[Ticket] = (),
        void: Sequence[TicketKey] = (),
        tells_remote: bool = False,
    ) -> CheckpointAnswer:
        """Commit where the run stands, together with all that it has said."""
        record = self.record
        entries = [
            LoggedMessage(self.next_seq + place, message) for place, message in enumerate(messages)
        ]
        steps = self.steps + completes_step
        made = materialize_output(
            entries,
            run_id=record.id,
            input=self.input,
            previous=self.output,
            step_count=self.steps + 1,
        )
        thread_state = self._thread_state()
        run_state = self._run_state(state, reason, steps)
        shown = state_snapshot(run_state, thread_state)
        events = [PendingEvent(event, self.step) for event in said]
        if completes_step:
            events += [PendingEvent(shown, self.step), PendingEvent(StepEnd(), self.step)]
        if finish is not None:
            events += [PendingEvent(shown, None), PendingEvent(finish, None)]
        answer = await self.store.commit(
            Checkpoint(
                tenant=record.tenant,
                thread_id=record.thread_id,
                run_id=record.id,
                attempt=record.attempt,
                next_seq=self.next_seq,
                messages=tuple(entry.message for entry in made.messages),
                output=made.output,
                inferred_input=self.inferred_input,
                state=state,
                steps=steps,
                usage=record.usage,
                run_state=run_state,
                thread_state=None if thread_state == self.thread_state else thread_state,
                opened=tuple(opened),
                applied=tuple(applied),
                void=tuple(void),
                pending_events=tuple(events),
                notifies_remote=tells_remote,
                parent_run_id=record.lineage.parent_run_id,
            )
        )
        if isinstance(answer, CheckpointSaved):
            self.log.extend(made.messages)
            self.next_seq += len(entries)
            self.output, self.steps = made.output, steps
            self.inferred_input = None
            self.in_step = self.in_step and not completes_step
            if completes_step:
                self.answers_in_turn, self.streamed = [], []
            self.thread_state = thread_state
            self._revision += 1
            settled = {*applied, *void}
            self.tickets = [t for t in (*self.tickets, *opened) if t.id not in settled]
        if not isinstance(answer, DecidedConcurrently):
            self.unread_inputs = answer.unread_inputs
        return answer

    def _thread_state(self) -> JsonObject:
        thread_state = with_agent_at_work(self.thread_state, self.spec)
        if self.binding is None:
            return thread_state
        contexts = {**thread_state.get(CONTEXTS, {}), self.target: self.binding}
        return {**thread_state, CONTEXTS: contexts}

    def _run_state(self, state: RunActivity, reason: str | None, steps: int) -> dict[str, Any]:
        """What continuations of this run find."""
        active = self._active_before + (self.clock.now() - self._began).total_seconds()
        stands = lifecycle(
            self.record,
            state,
            steps=steps,
            active_seconds=active,
            at=self.clock.now(),
            reason=reason,
        )
        remote: dict[str, Json] = {"version": 1, "told": self.saved_events, "turn": self.turn}
        if isinstance(state, Done) and self.in_step:
            remote["begun"] = self.turn_key
        if self.binding is not None:
            remote["targets"] = {self.target: self.binding}
        extensions: dict[str, Any] = {LIFECYCLE: stands, REMOTE: remote}
        if not self.new_messages.is_empty:
            extensions[OUTPUT_KEY] = output_to_json(self.new_messages)
        return {"revision": self._revision + 1, "extensions": extensions}
