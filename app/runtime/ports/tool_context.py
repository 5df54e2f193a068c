"""The context of a running tool call: for whom it runs, and what it can do besides returning."""

import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct, field

from app.domain.agents.specs import AgentSpec
from app.domain.deps import NO_DEPS, Deps
from app.domain.errors import (
    EventWaitInvalid,
    FileNotSaved,
    MemoryUnavailable,
    QuestionInvalid,
    StateError,
)
from app.domain.events.agent_events import AgentEvent
from app.domain.events.event_sizes import MAX_DELTA_BYTES
from app.domain.events.tool_call_events import ActivityDelta, ActivitySnapshot, ToolCallStreamDelta
from app.domain.ids import CallId, FileId
from app.domain.json_values import Json, JsonObject, without_none
from app.domain.redaction import Redact, unredacted
from app.domain.runs.run_info import RunInfo
from app.domain.tools.tool_calls import ResumeMode, SuspensionRequest
from app.runtime.ports.call_waits import ApprovalGiven, CarriedReplies, Events, Questions, Tasks
from app.runtime.ports.memory import Memory
from app.runtime.ports.tool_files import OpenFile, ToolFiles, checked_name, in_pieces
from app.runtime.state import Change, StateKey, StateView

ProgressStatus: TypeAlias = Literal["running", "waiting", "done"]
ProgressOutcome: TypeAlias = Literal["succeeded", "failed", "cancelled"]
V = TypeVar("V")
U = TypeVar("U")


async def _no_messages() -> Sequence[str]:
    return ()


async def _no_wait() -> None: ...


class ToolContext(Struct, frozen=True, kw_only=True):
    """The context of a running call. A tool's parameter with this annotation receives it.

    `closed` is set when the call has ended, timed out or been cancelled; later output is dropped. A sync
    function can't be stopped from outside, so a long one should check it. `suspension_id` and
    `suspension_reason` belong to the ticket that let a suspended call run.
    """

    run: RunInfo
    """The run that the tool works for."""
    call_id: CallId
    tool_name: str
    idempotency_key: str
    emit: Callable[[AgentEvent], None]
    agent: AgentSpec | None = None
    deps: Deps = NO_DEPS
    """What the functions with `@startup` opened: `ctx.deps.pool`."""
    resume_input: Json = None
    suspension_id: str | None = None
    suspension_reason: str | None = None
    snapshot: StateView = field(default_factory=StateView)
    """The state at the beginning of the call."""
    change: Callable[[Change], None] | None = None
    closed: threading.Event = field(default_factory=threading.Event)
    tasks: Tasks | None = None
    """The run's background tasks; None within a task."""
    events: Events | None = None
    """The source of `wait_for`; None in a background task, which can't wait."""
    questions: Questions | None = None
    """The source of `approve` and `ask`; None in a background task, which can't ask."""
    carried: CarriedReplies | None = None
    """The replies to questions that carried something; None in a background task, which can't ask."""
    files: ToolFiles | None = None
    """The source of `open_file` and `save_file`; None while nothing may be changed, as in a reconciler."""
    memories: Memory | None = None
    """The source of `memory`; None for agents without the plugin `memory`, and while nothing may be changed."""
    inbox: Callable[[], Awaitable[Sequence[str]]] = _no_messages
    redact: Redact = unredacted
    """Removes the configuration's secrets from a text, such as that of an exception."""
    wait_for_capacity: Callable[[], Awaitable[None]] = _no_wait
    """Waits until the shown output is saved, or nearly. An async tool is slowed down where it awaits, a sync
    one where it shows output. An asyncio task that a tool starts should await this between pieces."""

    async def messages(self) -> Sequence[str]:
        """The agent's messages to this background task since the last call."""
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
        """The result of a tool that needs a person's decision before it continues."""
        return SuspensionRequest(message, action, resume_mode, response_schema, suspension_id)

    async def approve(self, question: str) -> ApprovalGiven:
        """Ask a person for approval, and return the decision once it is given. The run is suspended meanwhile.

        The tool is left here, and called again from its start after the decision; then `approve` returns. So
        the code before it runs again and must be safe to repeat, under the same idempotency key. The question
        must have the same text each time. If the person edits the arguments, the tool is called with those.
        Raises `DecisionRejected` if the person rejects, or if the ticket expires.
        """
        return await self._ask_person().approve(question)

    async def ask(self, question: str, schema: JsonObject | None = None) -> Json:
        """Ask a person a question, and return the answer. The run is suspended meanwhile, as by `approve`.

        An answer that doesn't fit `schema` is refused. Raises `DecisionRejected` like `approve`.
        """
        return await self._ask_person().ask(question, schema)

    def _ask_person(self) -> Questions:
        if self.questions is None:
            raise QuestionInvalid("a background task can't ask a person: run the tool in its run")
        return self.questions

    async def wait_for(
        self,
        name: str,
        key: str,
        *,
        schema: JsonObject | None = None,
        timeout: float | None = None,
    ) -> Json:
        """Wait for a signal of that name and key, and return its payload. The run is suspended meanwhile.

        The tool is left here, and called again when the signal comes. So the code before `wait_for` runs
        again and must be safe to repeat, under the same idempotency key. Each wait of a call gets its own
        signal, also for the same name and key. A payload that doesn't fit `schema` is refused. After
        `timeout` seconds `wait_for` raises `EventTimedOut`.
        """
        if self.events is None:
            raise EventWaitInvalid(
                "a background task can't wait for events: run the tool in its run"
            )
        return await self.events.receive(name, key, schema, timeout)

    async def save_file(
        self,
        name: str,
        data: bytes | AsyncIterator[bytes],
        *,
        media_type: str | None = None,
    ) -> str:
        """Save a file as an artifact of the run, and return its id. Only async tools can use it.

        Give a large file as an async iterator, so that it is never in memory as a whole. Without `media_type`
        the signature of the bytes decides. A call that runs again saves equal bytes under the same name once.
        The file stays if the call fails later, and is deleted with the run's thread.
        """
        files = self._tool_files()
        return await files.save(
            self.call_id, self.idempotency_key, checked_name(name), in_pieces(data), media_type
        )

    async def open_file(self, file_id: str) -> OpenFile:
        """Open a file of the tenant for reading, in pieces: `async for piece in await ctx.open_file(id)`."""
        return await self._tool_files().open(FileId(file_id))

    @property
    def memory(self) -> Memory:
        """What the agent keeps across runs: `await ctx.memory.get(key)`. Only async tools can use it.

        The plugin `memory` of the agent says whose memories these are.
        """
        if self.memories is None:
            raise MemoryUnavailable(
                "the agent has no memory: add the table plugins.memory to it in the agents file"
            )
        return self.memories

    def _tool_files(self) -> ToolFiles:
        if self.files is None:
            raise FileNotSaved("files can be saved and opened only while the tool runs")
        return self.files

    def state(self, key: StateKey[V, Any]) -> V:
        """A value of the state, as of the beginning of the call."""
        return self.snapshot.get(key)

    def update(self, key: StateKey[Any, U], update: U) -> None:
        """Change the state together with the call's result; a call that fails changes nothing.

        The update must be JSON, because it may be stored before it is applied.
        """
        if self.change is None:
            raise StateError("this call has no state to change")
        # Encoded here, so that a value that isn't JSON fails in the tool and later changes have no effect.
        self.change(Change(key, json.loads(json.dumps(update, allow_nan=False))))

    def stream_output(self, text: str) -> None:
        """Show a piece of the output before the result; the model reads only the result."""
        for start in range(0, len(text), MAX_DELTA_BYTES):
            piece = text[start : start + MAX_DELTA_BYTES]
            self.emit(ToolCallStreamDelta(self.call_id, self.tool_name, piece))

    def activity(self, activity_type: str, content: Json) -> None:
        """Show what the tool is doing; this replaces its earlier activity of the same type."""
        # Encoded here, so that a value that isn't JSON fails in the tool and later changes have no effect.
        snapshot = json.loads(json.dumps(content, allow_nan=False))
        self.emit(ActivitySnapshot(self.call_id, activity_type, snapshot, True))

    def activity_delta(self, activity_type: str, patch: Json) -> None:
        """Show a change of an activity, as a JSON Patch or one operation of it."""
        encoded = json.loads(json.dumps(patch, allow_nan=False))
        operations = encoded if isinstance(encoded, list) else [encoded]
        self.emit(ActivityDelta(self.call_id, activity_type, operations))

    def progress(
        self,
        fraction: float | None = None,
        message: str | None = None,
        *,
        status: ProgressStatus = "running",
        outcome: ProgressOutcome | None = None,
        loaded: float | None = None,
        total: float | None = None,
    ) -> None:
        """Show the progress of the call: `fraction` between 0 and 1, or `loaded` of `total`.

        With an `outcome` the status is `done`.
        """
        known = {
            "outcome": outcome,
            "progress": None if fraction is None else min(1.0, max(0.0, fraction)),
            "loaded": loaded,
            "total": total,
            "message": message,
            "parent_tool_call_id": self.run.parent_call_id,
            "parent_run_id": self.run.parent_run_id,
        }
        parent = f"run:{self.run.id}"
        if self.run.parent_call_id is not None:
            parent = f"tool_call:{self.run.parent_call_id}"
        self.activity(
            "tool-call-progress",
            {
                "schema": "tool-call-progress.v1",
                "node_id": f"tool_call:{self.call_id}",
                "parent_node_id": parent,
                "tool_call_id": self.call_id,
                "tool_name": self.tool_name,
                "status": status if outcome is None else "done",
                "run_id": self.run.id,
                "thread_id": self.run.thread_id,
                **without_none(known),
            },
        )
