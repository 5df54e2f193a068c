"""Runs: one user intent from start to end, and its four statuses.

    created ──► running ◄──► waiting
       │           │            │
       └───────────┴────────────┴──► done        (done is the only end, and is never reopened)

A status says what a user may expect. That a run is *ready* isn't a status: it is a queued delivery.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias, assert_never

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
"""Where a run's state says how it stands, for its continuations."""
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
    """What a lifecycle's reason string means to a user; an unknown one is somebody else's event."""
    return _REASONS.get(status_reason or "", WaitingReason.EXTERNAL_EVENT)


# --- states: each has just the fields that it may have -------------------------------------------


@dataclass(frozen=True, slots=True)
class Created:
    """Accepted. Admitted means that it occupies its thread; otherwise it queues behind another run."""

    admitted: bool


@dataclass(frozen=True, slots=True)
class Running:
    """Being executed, by `owner`; without one it is on its way to the next worker."""

    owner: WorkerId | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Needs something from outside and holds nothing meanwhile. `message` is the lifecycle's word. With
    `until`, which only `rate_limit` has, the run needs nothing but time."""

    reason: WaitingReason
    message: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Done:
    termination: Termination
    finished_at: datetime
    final_output: str | None = None


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


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a run comes from; a run without parent is its own root."""

    root_run_id: RunId
    parent_run_id: RunId | None = None
    parent_thread_id: ThreadId | None = None
    parent_call_id: str | None = None
    depth: int = 0
    retry_of: RunId | None = None


@dataclass(frozen=True, slots=True)
class MessageInput:
    """The part of the log that a run was started with."""

    range: MessageRange | None
    trigger_message_ids: tuple[MessageId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """What a start command asks for, checked and resolved, before it is known where it will run."""

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
    """The part of the log that it is about, when it brings no messages of its own."""


TRANSPORT_REQUEST_ID = "transport_request_id"
"""Under which a run's request keeps the id that its client gave the HTTP request."""


def transport_in_request(request_id: str | None) -> JsonObject:
    """What a run's request keeps of the HTTP request that started it."""
    return {} if request_id is None else {TRANSPORT_REQUEST_ID: request_id}


@dataclass(frozen=True, slots=True)
class MessageOutput:
    """The part of the log that a run has written: the hull of its messages, and their ids."""

    range: MessageRange | None = None
    message_ids: tuple[MessageId, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, cumulative over all activations of a run."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run as it stands in the database."""

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
    """The delivery that began the newest activation; a run that was started directly has none."""
    losses: int
    cancel_requested_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    updated_at: datetime
    events_from: int
    lost_seconds: float = 0.0
    """Time spent executing by workers that didn't live to tell, over the whole run."""
    unread_inputs: int = 0
    """Messages that wait to enter the log."""
    open_tasks: int = 0
    """Background tasks that haven't ended."""
    rolled_back_by: RunId | None = None
    """The run in whose favour this one is taken out of the conversation, once it has ended."""
    pause: PauseRequest | None = None
    """The request that keeps it from executing, until a resume removes it."""

    @property
    def status(self) -> RunStatus:
        return status_of(self.state)

    @property
    def transport_request_id(self) -> str | None:
        """The client's id of the HTTP request that started the run."""
        found: str | None = self.request.get(TRANSPORT_REQUEST_ID)
        return found

    @property
    def is_done(self) -> bool:
        return isinstance(self.state, Done)

    @property
    def is_paused(self) -> bool:
        """No worker executes it, and none will before a resume or a cancel."""
        return (
            self.pause is not None
            and self.cancel_requested_at is None
            and self.status in (RunStatus.CREATED, RunStatus.WAITING)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs a list shows."""

    thread_id: ThreadId | None = None
    parent_run_id: RunId | None = None
    root_run_id: RunId | None = None
    agent_id: AgentId | None = None
    status: RunStatus | None = None
    outcome: Outcome | None = None
    termination_code: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    metadata: JsonObject | None = None
