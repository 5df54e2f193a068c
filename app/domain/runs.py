"""Runs: one user intent from start to end, its four statuses, and how it may end.

    created ──► running ◄──► waiting
       │           │            │
       └───────────┴────────────┴──► done        (done is the only end, and is never reopened)

A status says what a user may expect. That a run is *ready* isn't a status: it is a queued delivery.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias, assert_never

from app.domain.ids import AgentId, AgentVersion, MessageId, RunId, Tenant, ThreadId, WorkerId
from app.domain.json_values import JsonObject
from app.domain.messages import Message, MessageRange


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


AWAITING_TASKS = "awaiting_tasks"
AWAITING_CHILDREN = "awaiting_children"
_REASONS = {
    AWAITING_CHILDREN: WaitingReason.CHILD_RUNS,
    AWAITING_TASKS: WaitingReason.BACKGROUND_TASKS,
    "input_required": WaitingReason.USER_INPUT,
    "user_input_required": WaitingReason.USER_INPUT,
    "auth_required": WaitingReason.TOOL_PERMISSION,
    "suspended": WaitingReason.TOOL_PERMISSION,
    "rate_limit": WaitingReason.RATE_LIMIT,
    "manual_pause": WaitingReason.MANUAL_PAUSE,
    "agent_version_unavailable": WaitingReason.AGENT_VERSION_UNAVAILABLE,
}


def waiting_reason(status_reason: str | None) -> WaitingReason:
    """What a lifecycle's reason string means to a user; an unknown one is somebody else's event."""
    return _REASONS.get(status_reason or "", WaitingReason.EXTERNAL_EVENT)


# --- terminations -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NaturalEnd:
    """The assistant answered without asking for tools."""


@dataclass(frozen=True, slots=True)
class BehaviorRequested:
    """A plugin asked for the end."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A limit or stop condition fired: `max_rounds`, …"""

    code: str
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    code: str
    detail: str


Termination: TypeAlias = NaturalEnd | BehaviorRequested | Stopped | Cancelled | Blocked | Failed

MAX_ROUNDS = "max_rounds"
WORKER_LOST = "worker_lost"
SUSPENDED: Mapping[str, str] = {"type": "suspended"}
"""What an event shows where a record that waits has no termination."""


def termination_to_json(termination: Termination) -> dict[str, Any]:
    match termination:
        case NaturalEnd():
            return {"type": "natural_end"}
        case BehaviorRequested():
            return {"type": "behavior_requested"}
        case Stopped(code, detail):
            return _without_none({"type": "stopped", "code": code, "detail": detail})
        case Cancelled(reason):
            return _without_none({"type": "cancelled", "detail": reason})
        case Blocked(reason):
            return {"type": "blocked", "detail": reason}
        case Failed(code, detail):
            return {"type": "error", "code": code, "detail": detail}
        case _:
            assert_never(termination)


def termination_from_json(raw: Mapping[str, Any]) -> Termination:
    match raw.get("type"):
        case "natural_end":
            return NaturalEnd()
        case "behavior_requested":
            return BehaviorRequested()
        case "stopped":
            return Stopped(raw["code"], raw.get("detail"))
        case "cancelled":
            return Cancelled(raw.get("detail"))
        case "blocked":
            return Blocked(raw["detail"])
        case _:
            return Failed(raw.get("code", "error"), raw.get("detail", ""))


def status_reason(termination: Termination) -> str:
    """The lifecycle's one-line reason for being done."""
    match termination:
        case NaturalEnd():
            return "natural"
        case BehaviorRequested():
            return "behavior_requested"
        case Stopped(code, _):
            return f"stopped:{code}"
        case Cancelled():
            return "cancelled"
        case Blocked(reason):
            return f"blocked:{reason}"
        case Failed():
            return "error"
        case _:
            assert_never(termination)


class Outcome(StrEnum):
    """One word for how it went, derived from the termination."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BUDGET_EXCEEDED = "budget_exceeded"
    BLOCKED = "blocked"


def outcome(termination: Termination) -> Outcome:
    match termination:
        case NaturalEnd() | BehaviorRequested():
            return Outcome.SUCCEEDED
        case Stopped():
            return Outcome.BUDGET_EXCEEDED
        case Cancelled():
            return Outcome.CANCELLED
        case Blocked():
            return Outcome.BLOCKED
        case Failed():
            return Outcome.FAILED
        case _:
            assert_never(termination)


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
    """Needs something from outside and holds nothing meanwhile. `message` is the lifecycle's word."""

    reason: WaitingReason
    message: str


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
    unread_inputs: int = 0
    """Messages that wait to enter the log."""
    open_tasks: int = 0
    """Background tasks that haven't ended."""

    @property
    def status(self) -> RunStatus:
        return status_of(self.state)

    @property
    def is_done(self) -> bool:
        return isinstance(self.state, Done)


def _without_none(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs a list shows."""

    thread_id: ThreadId | None = None
    parent_run_id: RunId | None = None
    root_run_id: RunId | None = None
    agent_id: AgentId | None = None
    status: RunStatus | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    metadata: JsonObject | None = None
