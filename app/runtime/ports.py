"""What the runtime needs from the world: narrow protocols, and the types that cross them."""

import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from app.domain.agents.specs import AgentSpec
from app.domain.checkpoints import Checkpoint, CheckpointAnswer
from app.domain.children.background_tasks import TaskStatus
from app.domain.errors import EventWaitInvalid, StateError
from app.domain.events.event_sizes import MAX_DELTA_BYTES
from app.domain.events.run_events import (
    ActivityDelta,
    ActivitySnapshot,
    AgentEvent,
    ToolCallStreamDelta,
)
from app.domain.ids import AgentId, CallId, RunId, TaskId, ThreadId
from app.domain.inference.options import NO_OPTIONS, InferenceOptions
from app.domain.json_values import Json, JsonObject
from app.domain.redaction import Redact, unredacted
from app.domain.rules.rules import Rule
from app.domain.threads.messages import LoggedMessage, Message
from app.domain.tickets.tickets import Ticket
from app.domain.tools.crash_evidence import CrashEvidence
from app.domain.tools.reconciliation import Found
from app.domain.tools.tool_calls import ResumeMode, SuspensionRequest, ToolDescriptor, ToolResult
from app.runtime.state import Change, StateKey, StateView

# --- models ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One inference. `messages` are already as the provider should see them: one result per call."""

    system_prompt: str
    messages: Sequence[Message]
    tools: Sequence[ToolDescriptor] = ()
    options: InferenceOptions = NO_OPTIONS


class StopReason(StrEnum):
    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    TOOL_USE = "tool_use"
    STOP_SEQUENCE = "stop_sequence"
    CONTENT_FILTER = "content_filter"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """As reported by the provider; negatives are clamped to 0, what it didn't say is None."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_creation_tokens: int | None = None
    thinking_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TextChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    text: str


@dataclass(frozen=True, slots=True)
class CallOpened:
    id: CallId
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    id: CallId
    args_delta: str


@dataclass(frozen=True, slots=True)
class ModelFinished:
    """Last item of every stream that came to its end."""

    stop_reason: StopReason
    usage: TokenUsage | None


ModelChunk: TypeAlias = TextChunk | ReasoningChunk | CallOpened | CallArguments | ModelFinished


class LanguageModel(Protocol):
    """One model of one provider.

    `stream` opens the provider's stream; leaving the context, also by cancellation, closes its socket.
    It yields what has arrived together as one list, adjacent text already joined, and ends with
    `Finished`; no two calls of one answer have the same id. A stream that fails or ends early raises
    `InferenceFailed`. It never retries itself.
    """

    @property
    def name(self) -> str:
        """The provider's own name of the model."""

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[ModelChunk]]]: ...


# --- tools ----------------------------------------------------------------------------------------


ProgressStatus: TypeAlias = Literal["pending", "running", "done", "failed", "cancelled"]
V = TypeVar("V")
U = TypeVar("U")


class Tasks(Protocol):
    """The background tasks of a run, for its tools. None means that it has no such task."""

    async def cancel(self, task_id: TaskId) -> TaskStatus | None:
        """End an open task; how it stands then."""

    async def send(self, task_id: TaskId, text: str, key: str) -> TaskStatus | None:
        """Put a message before an open task, once per key; how it stands then."""


async def _no_messages() -> Sequence[str]:
    return ()


async def _always_room() -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may know, say and change while it runs. A parameter annotated with it receives it.

    Once `over` is set nobody waits for the call any more: it has ended, timed out or been cancelled,
    and what it still says is dropped. A sync function can't be stopped from outside; it may look here.
    `suspension_id` and `suspension_reason` are those of the question whose answer lets the call run.
    """

    run_id: RunId
    thread_id: ThreadId
    call_id: CallId
    tool_name: str
    idempotency_key: str
    emit: Callable[[AgentEvent], None]
    agent: AgentSpec | None = None
    resume_input: Json = None
    suspension_id: str | None = None
    suspension_reason: str | None = None
    snapshot: StateView = field(default_factory=StateView)
    """The state as it was when the call began."""
    change: Callable[[Change], None] | None = None
    parent_run_id: RunId | None = None
    parent_call_id: CallId | None = None
    closed: threading.Event = field(default_factory=threading.Event)
    tasks: Tasks | None = None
    """The run's tasks; a task has none itself."""
    events: "Events | None" = None
    """What the call waits for; a background task can't wait."""
    inbox: Callable[[], Awaitable[Sequence[str]]] = _no_messages
    redact: Redact = unredacted
    """Replaces the secrets of the configuration; the text of an exception goes through it."""
    wait_for_capacity: Callable[[], Awaitable[None]] = _always_room
    """Waits until what was shown is saved, or nearly. A tool is held up by itself where it awaits something,
    a plain function where it shows something; tasks that a tool has begun await this between pieces."""

    async def messages(self) -> Sequence[str]:
        """What the agent has sent to this background task since it last looked."""
        return await self.inbox()

    def suspend(
        self,
        message: str,
        *,
        action: str = "",
        response_schema: JsonObject | None = None,
        resume_mode: ResumeMode = ResumeMode.REPLAY_TOOL_CALL,
        suspension_id: str | None = None,
    ) -> SuspensionRequest:
        """Returned by a tool that wants a person to be asked before it goes on."""
        return SuspensionRequest(message, action, resume_mode, response_schema, suspension_id)

    async def wait_for(
        self,
        name: str,
        key: str,
        *,
        schema: JsonObject | None = None,
        timeout: float | None = None,
    ) -> Json:
        """Wait for a signal of that name and key, and return its payload. The run is suspended meanwhile.

        The tool is left here and called once more when the signal has come. So the code before `wait_for`
        runs again: it must be safe to repeat, under the same idempotency key. Each wait of a call gets its
        own signal, also for the same name and key. A payload that `schema` doesn't take isn't an answer.
        After `timeout` seconds `wait_for` raises `EventTimedOut`.
        """
        if self.events is None:
            raise EventWaitInvalid(
                "a background task can't wait for events: run the tool in its run"
            )
        return await self.events.receive(name, key, schema, timeout)

    def state(self, key: StateKey[V, Any]) -> V:
        """A value of the state, as it was when the call began."""
        return self.snapshot.get(key)

    def update(self, key: StateKey[Any, U], update: U) -> None:
        """Change the state together with the call's result; a call that fails changes nothing.

        The update is JSON, because it may have to outlive this process before its turn comes.
        """
        if self.change is None:
            raise StateError("this call has no state to change")
        # Encoded here so that what isn't JSON fails in the tool, and later changes don't show.
        self.change(Change(key, json.loads(json.dumps(update, allow_nan=False))))

    def stream_output(self, text: str) -> None:
        """Show a piece of the output before the result is there; the model reads only the result."""
        for start in range(0, len(text), MAX_DELTA_BYTES):
            piece = text[start : start + MAX_DELTA_BYTES]
            self.emit(ToolCallStreamDelta(self.call_id, self.tool_name, piece))

    def activity(self, activity_type: str, content: Json) -> None:
        """Show what the tool is at, in place of what it showed before under the same type."""
        # Encoded here so that what isn't JSON fails in the tool, and later changes don't show.
        snapshot = json.loads(json.dumps(content, allow_nan=False))
        self.emit(ActivitySnapshot(self.call_id, activity_type, snapshot, True))

    def activity_delta(self, activity_type: str, patch: Json) -> None:
        """Show what has changed of an activity, as a JSON Patch; one operation alone is one too."""
        encoded = json.loads(json.dumps(patch, allow_nan=False))
        operations = encoded if isinstance(encoded, list) else [encoded]
        self.emit(ActivityDelta(self.call_id, activity_type, operations))

    def progress(
        self,
        fraction: float | None = None,
        message: str | None = None,
        *,
        status: ProgressStatus = "running",
        loaded: float | None = None,
        total: float | None = None,
    ) -> None:
        """Show how far the call has come: `fraction` between 0 and 1, or `loaded` out of `total`."""
        known = {
            "progress": None if fraction is None else min(1.0, max(0.0, fraction)),
            "loaded": loaded,
            "total": total,
            "message": message,
            "parent_call_id": self.parent_call_id,
            "parent_run_id": self.parent_run_id,
        }
        parent = f"run:{self.run_id}"
        if self.parent_call_id is not None:
            parent = f"tool_call:{self.parent_call_id}"
        self.activity(
            "tool-call-progress",
            {
                "schema": "tool-call-progress.v1",
                "node_id": f"tool_call:{self.call_id}",
                "parent_node_id": parent,
                "call_id": self.call_id,
                "tool_name": self.tool_name,
                "status": status,
                "run_id": self.run_id,
                "thread_id": self.thread_id,
                **{key: value for key, value in known.items() if value is not None},
            },
        )


class Events(Protocol):
    async def receive(
        self, name: str, key: str, schema: JsonObject | None, timeout: float | None
    ) -> Json:
        """The payload of the call's next wait for this name and key; suspends the call without one."""


class Tool(Protocol):
    """One callable tool. Its errors are results; only cancellation leaves `execute` as an exception."""

    @property
    def descriptor(self) -> ToolDescriptor: ...

    def invalid_arguments(self, arguments: Json) -> str | None:
        """Why these arguments break the schema, or None when they don't."""

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult: ...


@runtime_checkable
class Reconciles(Tool, Protocol):
    """A tool that may be asked what became of a call which a lost worker left running."""

    @property
    def reconciles(self) -> bool:
        """Whether there is a point in asking."""

    async def reconcile(self, arguments: dict[str, Any], context: ToolContext) -> Found:
        """Look, and change nothing. The call is the one of the context's idempotency key."""


# --- persistence and speech -----------------------------------------------------------------------


class CheckpointStore(Protocol):
    async def commit(self, checkpoint: Checkpoint) -> CheckpointAnswer:
        """Write all of it or nothing; raises `OwnershipLost` when the run isn't ours any more."""


class TicketAnswers(Protocol):
    async def of_call(self, step_index: int, call_id: CallId) -> Sequence[Ticket]:
        """All tickets of one call, the oldest first."""

    async def unapplied(self) -> Sequence[Ticket]:
        """The run's tickets that are open, or answered and not yet applied, as they are now."""

    async def names_used(self) -> Collection[str]:
        """The names of all tickets that the run has ever opened."""


class RememberedRules(Protocol):
    async def for_calls_of(self, agent_id: AgentId) -> Sequence[Rule]:
        """What people have decided for calls of an agent in this run, as it is now."""


class NoRememberedRules:
    async def for_calls_of(self, agent_id: AgentId) -> Sequence[Rule]:
        return ()


class CrashEvidenceReader(Protocol):
    async def evidence_of(self, call_id: CallId, since: datetime | None) -> CrashEvidence:
        """What is known of a call of the run that was handed to its tool at that time."""


class NoCrashEvidence:
    async def evidence_of(self, call_id: CallId, since: datetime | None) -> CrashEvidence:
        return CrashEvidence()


class Inbox(Protocol):
    async def enter_log(self, next_seq: int) -> Sequence[LoggedMessage]:
        """Append what waits for the run to its log, and return the log from `next_seq` on; raises
        `OwnershipLost` when the run isn't ours any more."""


class EventEmitter(Protocol):
    def emit(self, event: AgentEvent, step: int | None) -> None:
        """Say something now; it is durable before any client sees it."""

    async def wait_for_capacity(self) -> None:
        """Wait until what was said and isn't durable yet is within its bound."""
