"""A run of a remote agent while it executes: its binding, its open turn, and how its progress is saved."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from app.domain.agents.backend_results import (
    NO_OUTPUT,
    OUTPUT_KEY,
    BackendOutput,
    output_from_json,
    output_to_json,
)
from app.domain.agents.specs import AgentSpec
from app.domain.checkpoints import CheckpointAnswer, CheckpointSaved
from app.domain.events.agent_events import AgentEvent
from app.domain.events.run_events import RunFinish
from app.domain.ids import MessageId, RunId, TicketKey
from app.domain.json_values import Json, JsonObject
from app.domain.runs.runs import LIFECYCLE, Done, RunRecord
from app.domain.structs import replace
from app.domain.threads.messages import Message, Role, Visibility
from app.domain.tickets.tickets import Ticket
from app.runtime.handoff import with_active_agent
from app.runtime.ports.files import NO_FILES, FileReader
from app.runtime.ports.tool_files import ArtifactFiles
from app.runtime.run_session import EXECUTING, RunActivity, RunSession

REMOTE = "__runtime_remote_backend"
CONTEXTS = "__runtime.remote_contexts"
"""The thread's bindings by remote: a later run continues the same conversation there."""


def turn_key(run_id: RunId, steps: int) -> str:
    """The key of the turn after `steps` steps. Every attempt at the turn has the same key."""
    return f"{run_id}:{steps + 1}"


class StartedTurn(Struct, frozen=True):
    """A turn that the remote may be executing: its key, and its binding if that is known."""

    key: str
    binding: JsonObject | None


def accepted_turn(record: RunRecord) -> StartedTurn | None:
    """The newest turn that the remote has accepted."""
    remote = _remote_state_of(record)
    if remote.get("turn") is None:
        return None
    return StartedTurn(remote["turn"], _binding_in(remote))


def started_turn(record: RunRecord) -> StartedTurn | None:
    """The turn that was open when the run ended, else the last accepted one.

    A turn that was begun and not accepted may have reached the remote.
    """
    accepted, begun = accepted_turn(record), _remote_state_of(record).get("begun")
    if begun is None:
        return accepted
    return StartedTurn(begun, None if accepted is None else accepted.binding)


def is_remote(record: RunRecord) -> bool:
    """Whether a remote agent has executed the run."""
    return bool(_remote_state_of(record))


def previous_output(record: RunRecord) -> BackendOutput:
    """The output of the last turn, from the run's state."""
    extensions: JsonObject = (record.run_state or {}).get("extensions", {})
    output = extensions.get(OUTPUT_KEY)
    return NO_OUTPUT if output is None else output_from_json(output)


def target_in(record: RunRecord) -> str:
    """The name of the remote in the run's state; empty before the remote has accepted a turn."""
    return next(iter(_remote_state_of(record).get("targets", {})), "")


def _remote_state_of(record: RunRecord) -> JsonObject:
    state: JsonObject = (record.run_state or {}).get("extensions", {}).get(REMOTE, {})
    return state


def _binding_in(remote: JsonObject) -> JsonObject | None:
    return next(iter(remote.get("targets", {}).values()), None)


@dataclass(slots=True, kw_only=True)
class RemoteRun(RunSession):
    """An executing run of a remote agent: its binding and its open turn."""

    spec: AgentSpec
    target: str
    """The name of the remote in the state. It is the same after a restart."""
    files: FileReader = NO_FILES
    """Files that messages refer to. A remote agent gets their bytes."""
    artifact_files: ArtifactFiles | None = None
    """Where the artifacts of the remote agent become files."""
    new_messages: BackendOutput = NO_OUTPUT
    last_sent_seq: int = field(init=False)
    """The seq of the last message that was sent to the remote."""
    sent_answers: list[MessageId] = field(init=False)
    """Answers that were sent before they entered the log, which has them after that message."""
    turn: str | None = field(init=False)
    """The newest turn that the remote has accepted."""
    binding: JsonObject | None = field(init=False)
    answers_in_turn: list[Message] = field(default_factory=list)
    """People's answers to the open turn. The end of the turn writes them to the log."""
    streamed: list[str] = field(default_factory=list)
    """The text that the open turn has streamed since its start or the last `stream_reset`."""
    _revision: int = field(init=False)
    _active_before: float = field(init=False)

    def __post_init__(self) -> None:
        RunSession.__post_init__(self)
        stored = self.record.run_state or {}
        self._revision = stored.get("revision", 0)
        extensions = stored.get("extensions", {})
        self._active_before = extensions.get(LIFECYCLE, {}).get("active_ms", 0) / 1000
        remote = extensions.get(REMOTE, {})
        self.turn = remote.get("turn")
        self.last_sent_seq = remote.get("last_sent_seq", self._sent_before_input())
        self.sent_answers = list(remote.get("sent_answers", ()))
        contexts = remote.get("targets") or self.thread_state.get(CONTEXTS) or {}
        self.binding = contexts.get(self.target)

    def _sent_before_input(self) -> int:
        """The seq before the run's input: earlier messages of the thread count as sent."""
        consumed = self.input
        return 0 if consumed is None or consumed.range is None else consumed.range.from_seq - 1

    @property
    def turn_key(self) -> str:
        """The key of the open turn, or of the next one."""
        return turn_key(self.record.id, self.steps)

    @property
    def is_turn_accepted(self) -> bool:
        """Whether the remote has the turn already: a takeover joins it."""
        return self.turn == self.turn_key

    @property
    def unsent_messages(self) -> list[Message]:
        """The users' messages in the log that the remote doesn't have yet."""
        return [
            entry.message
            for entry in self.log
            if entry.seq > self.last_sent_seq
            and entry.message.id not in self.sent_answers
            and entry.message.role is Role.USER
            and entry.message.visibility is Visibility.ALL
        ]

    def mark_log_as_sent(self) -> None:
        self.last_sent_seq, self.sent_answers = self.next_seq - 1, []

    async def save(
        self,
        messages: Sequence[Message] = (),
        *,
        state: RunActivity = EXECUTING,
        reason: str | None = None,
        completes_step: bool = False,
        finish: RunFinish | None = None,
        events: Sequence[AgentEvent] = (),
        applied: Sequence[TicketKey] = (),
        opened: Sequence[Ticket] = (),
        void: Sequence[TicketKey] = (),
        notifies_remote: bool = False,
    ) -> CheckpointAnswer:
        """Commit the run's new state together with the events that it has emitted."""
        run_state = self._run_state(state, reason, self.steps + completes_step)
        checkpoint = self.checkpoint(
            messages,
            state=state,
            run_state=run_state,
            run_state_in_step=run_state,
            thread_state=self._thread_state(),
            usage=self.record.usage,
            completes_step=completes_step,
            finish=finish,
            events=events,
            applied=applied,
            opened=opened,
        )
        answer = await self.commit(
            replace(checkpoint, void=tuple(void), notifies_remote=notifies_remote)
        )
        if isinstance(answer, CheckpointSaved):
            self._revision += 1
            if completes_step:
                self.answers_in_turn, self.streamed = [], []
        return answer

    def _thread_state(self) -> JsonObject:
        thread_state = with_active_agent(self.thread_state, self.spec)
        if self.binding is None:
            return thread_state
        contexts = {**thread_state.get(CONTEXTS, {}), self.target: self.binding}
        return {**thread_state, CONTEXTS: contexts}

    def _run_state(self, state: RunActivity, reason: str | None, steps: int) -> dict[str, Any]:
        """The run's state for later activations."""
        active = self._active_before + (self.clock.now() - self._started_at).total_seconds()
        progress = self.lifecycle(state, steps=steps, active_seconds=active, reason=reason)
        remote: dict[str, Json] = {
            "version": 1,
            "last_sent_seq": self.last_sent_seq,
            "turn": self.turn,
        }
        if self.sent_answers:
            remote["sent_answers"] = list(self.sent_answers)
        if isinstance(state, Done) and self.in_step:
            remote["begun"] = self.turn_key
        if self.binding is not None:
            remote["targets"] = {self.target: self.binding}
        extensions: dict[str, Any] = {LIFECYCLE: progress, REMOTE: remote}
        if not self.new_messages.is_empty:
            extensions[OUTPUT_KEY] = output_to_json(self.new_messages)
        return {"revision": self._revision + 1, "extensions": extensions}
