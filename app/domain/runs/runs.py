"""Runs: one request to an agent from start to end, with four statuses.

    created ──► running ◄──► waiting
       │           │            │
       └───────────┴────────────┴──► done        (done is the only end, and is never reopened)

A run that is ready to execute has no status of its own: a delivery for it is queued.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias, assert_never

from msgspec import Struct

from app.domain.ids import AgentId, AgentVersion, MessageId, RunId, Tenant, ThreadId, WorkerId
from app.domain.json_values import JsonObject
from app.domain.runs.pauses import PauseRequest
from app.domain.runs.terminations import Outcome, Termination
from app.domain.threads.messages import Message, MessageRange


class RunStatus(StrEnum):
    CREATED = "created"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"


RUN_TRANSITIONS: Mapping[RunStatus, frozenset[RunStatus]] = {
    RunStatus.CREATED: frozenset({RunStatus.CREATED, RunStatus.RUNNING, RunStatus.DONE}),
    RunStatus.RUNNING: frozenset({RunStatus.RUNNING, RunStatus.WAITING, RunStatus.DONE}),
    RunStatus.WAITING: frozenset({RunStatus.WAITING, RunStatus.RUNNING, RunStatus.DONE}),
    RunStatus.DONE: frozenset({RunStatus.DONE}),
}
"""The state diagram in the documents is compared with this."""


class WaitingReason(StrEnum):
    TOOL_PERMISSION = "tool_permission"
    USER_INPUT = "user_input"
    BACKGROUND_TASKS = "background_tasks"
    EXTERNAL_EVENT = "external_event"
    RATE_LIMIT = "rate_limit"
    MANUAL_PAUSE = "manual_pause"
    AGENT_VERSION_UNAVAILABLE = "agent_version_unavailable"
    CHILD_RUNS = "child_runs"


LIFECYCLE = "__runtime.run_lifecycle"
"""Key of the lifecycle entry in a run's state."""
AWAITING_TASKS = "awaiting_tasks"
AWAITING_CHILDREN = "awaiting_children"
MANUAL_PAUSE = "manual_pause"
AWAITING_EVENT = "awaiting_event"
LIMIT_REACHED = "limit_reached"
RATE_LIMIT = "rate_limit"
_REASONS = {
    AWAITING_CHILDREN: WaitingReason.CHILD_RUNS,
    AWAITING_TASKS: WaitingReason.BACKGROUND_TASKS,
    AWAITING_EVENT: WaitingReason.EXTERNAL_EVENT,
    "input_required": WaitingReason.USER_INPUT,
    "user_input_required": WaitingReason.USER_INPUT,
    "auth_required": WaitingReason.TOOL_PERMISSION,
    "suspended": WaitingReason.TOOL_PERMISSION,
    LIMIT_REACHED: WaitingReason.USER_INPUT,
    RATE_LIMIT: WaitingReason.RATE_LIMIT,
    MANUAL_PAUSE: WaitingReason.MANUAL_PAUSE,
    "agent_version_unavailable": WaitingReason.AGENT_VERSION_UNAVAILABLE,
}


def waiting_reason(status_reason: str | None) -> WaitingReason:
    """The waiting reason for a lifecycle's reason string; an unknown one counts as an external event."""
    return _REASONS.get(status_reason or "", WaitingReason.EXTERNAL_EVENT)


# --- states: each has only the fields that it may have --------------------------------------------


class Created(Struct, frozen=True):
    """The run is accepted. `admitted`: it occupies its thread; otherwise it is queued behind another run."""

    admitted: bool


class Running(Struct, frozen=True):
    """Being executed by `owner`. Without an owner, a delivery is queued for the next worker."""

    owner: WorkerId | None


class Waiting(Struct, frozen=True):
    """The run waits and needs no worker meanwhile. `message` is the lifecycle's reason string. Only
    `rate_limit` has `until`: the run resumes then without a decision."""

    reason: WaitingReason
    message: str
    until: datetime | None = None


class Done(Struct, frozen=True):
    termination: Termination
    finished_at: datetime
    final_output: str | None = None
    structured_output: JsonObject | None = None
    """The final answer as data, if the run had to give one."""


RunState: TypeAlias = Created | Running | Waiting | Done


def status_of(state: RunState) -> RunStatus:
    match state:
        case Created():
            return RunStatus.CREATED
        case Running():
            return RunStatus.RUNNING
        case Waiting():
            return RunStatus.WAITING
        case Done():
            return RunStatus.DONE
        case _:
            assert_never(state)


# --- the record ----------------------------------------------------------------------------------


class Lineage(Struct, frozen=True):
    """The origin of a run; a run without parent is its own root."""

    root_run_id: RunId
    parent_run_id: RunId | None = None
    parent_thread_id: ThreadId | None = None
    parent_call_id: str | None = None
    depth: int = 0
    retry_of: RunId | None = None


class MessageInput(Struct, frozen=True):
    """The range of the log that a run was started with."""

    range: MessageRange | None
    trigger_message_ids: tuple[MessageId, ...] = ()


class NewRun(Struct, frozen=True, kw_only=True):
    """A checked start request, before it is known whether the run is queued."""

    tenant: Tenant
    id: RunId
    thread_id: ThreadId
    agent_id: AgentId
    agent_version: AgentVersion
    messages: tuple[Message, ...]
    request: JsonObject
    request_digest: str
    metadata: JsonObject
    started_by: str
    lineage: Lineage
    traceparent: str | None = None
    input: MessageInput | None = None
    """The range of the log that the run is about, if the start has no messages."""
    thread_key: str | None = None
    """The thread's key; at first, the one by which the start named the thread."""


TRANSPORT_REQUEST_ID = "transport_request_id"
"""Key of the client's request id in a run's request."""


CONTEXT = "context"
"""Key of the start's `context` in a run's request. Tools read it; no response shows it."""
MAX_CONTEXT_BYTES = 16_384


def transport_in_request(request_id: str | None) -> JsonObject:
    """The entry of the HTTP request's id in a run's request."""
    return {} if request_id is None else {TRANSPORT_REQUEST_ID: request_id}


class MessageOutput(Struct, frozen=True):
    """The messages that a run has written: their ids, and the smallest range of the log with all of them."""

    range: MessageRange | None = None
    message_ids: tuple[MessageId, ...] = ()


class Usage(Struct, frozen=True):
    """Tokens, cumulative over all activations of a run."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens
        )


class RunRecord(Struct, frozen=True, kw_only=True):
    """A run as stored."""

    tenant: Tenant
    id: RunId
    thread_id: ThreadId
    agent_id: AgentId
    agent_version: AgentVersion
    state: RunState
    lineage: Lineage
    request: JsonObject
    input: MessageInput | None
    output: MessageOutput
    steps: int
    usage: Usage
    run_state: JsonObject | None
    metadata: JsonObject
    started_by: str
    attempt: int
    dispatch_id: str | None
    """The delivery that began the newest activation; None if that was started directly."""
    losses: int
    cancel_requested_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    updated_at: datetime
    events_from: int
    lost_seconds: float = 0.0
    """Time that lost workers spent executing, over the whole run."""
    unread_inputs: int = 0
    """The number of pending inputs."""
    open_tasks: int = 0
    """The number of background tasks that haven't ended."""
    rolled_back_by: RunId | None = None
    """The run that replaces this one: at its end, this run's messages are taken out of the conversation."""
    pause: PauseRequest | None = None
    """The pause request, until a resume removes it."""
    thread_key: str | None = None
    """The thread's key, if it had one when the run was created."""

    @property
    def status(self) -> RunStatus:
        return status_of(self.state)

    @property
    def transport_request_id(self) -> str | None:
        """The client's id of the HTTP request that started the run."""
        found: str | None = self.request.get(TRANSPORT_REQUEST_ID)
        return found

    @property
    def context(self) -> JsonObject:
        """The data for the run's tools, which a server sent with the start."""
        found: JsonObject = self.request.get(CONTEXT, {})
        return found

    @property
    def shown_request(self) -> JsonObject:
        """The request without the parts that no response shows."""
        return {key: value for key, value in self.request.items() if key != CONTEXT}

    @property
    def is_done(self) -> bool:
        return isinstance(self.state, Done)

    @property
    def is_paused(self) -> bool:
        """Whether no worker executes the run before a resume or a cancel."""
        return (
            self.pause is not None
            and self.cancel_requested_at is None
            and self.status in (RunStatus.CREATED, RunStatus.WAITING)
        )


class RunFilter(Struct, frozen=True, kw_only=True):
    """The filter of a run list."""

    thread_id: ThreadId | None = None
    parent_run_id: RunId | None = None
    root_run_id: RunId | None = None
    agent_id: AgentId | None = None
    ids: tuple[RunId, ...] | None = None
    status: RunStatus | None = None
    statuses: tuple[RunStatus, ...] = ()
    """One of these, if any are given."""
    waiting_reason: WaitingReason | None = None
    paused: bool | None = None
    """Whether the run has a pause request and isn't done."""
    outcome: Outcome | None = None
    termination_code: str | None = None
    metadata: JsonObject | None = None
