"""Backends as facts: how a run at one may stand, and what comes out of it.

A backend is whoever executes a run: our own loop, or a remote agent.
"""

from dataclasses import dataclass, field
from typing import Any, TypeAlias, assert_never

from app.domain.json_values import Json, JsonObject
from app.domain.runs.runs import RunStatus
from app.domain.runs.terminations import (
    BehaviorRequested,
    Blocked,
    Cancelled,
    Failed,
    NaturalEnd,
    Stopped,
    Termination,
    status_reason,
)
from app.domain.tickets.decisions import Action

# --- how a run at a backend stands ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Completed:
    """It has come to its end by itself; the termination says how."""


@dataclass(frozen=True, slots=True)
class WaitingInput:
    message: str | None = None


@dataclass(frozen=True, slots=True)
class WaitingAuth:
    message: str | None = None


@dataclass(frozen=True, slots=True)
class BackendSuspended:
    """It waits for something that is neither input nor a login."""

    message: str | None = None


@dataclass(frozen=True, slots=True)
class BackendFailed:
    message: str


@dataclass(frozen=True, slots=True)
class BackendCancelled:
    pass


@dataclass(frozen=True, slots=True)
class TimedOut:
    pass


BackendStatus: TypeAlias = (
    Completed
    | WaitingInput
    | WaitingAuth
    | BackendSuspended
    | BackendFailed
    | BackendCancelled
    | TimedOut
)
WAITING_STATUSES = (WaitingInput, WaitingAuth, BackendSuspended)


def display(status: BackendStatus) -> str:
    """The status in words."""
    match status:
        case Completed():
            return "completed"
        case WaitingInput(message):
            return _with_message("waiting_input", message)
        case WaitingAuth(message):
            return _with_message("waiting_auth", message)
        case BackendSuspended(message):
            return _with_message("suspended", message)
        case BackendFailed(message):
            return _with_message("failed", message)
        case BackendCancelled():
            return "cancelled"
        case TimedOut():
            return "timeout"
        case _:
            assert_never(status)


def _with_message(word: str, message: str | None) -> str:
    return word if message is None else f"{word}: {message}"


@dataclass(frozen=True, slots=True)
class PersistedStatus:
    """How a backend's status is kept: of the run, its one-line reason, and the label of its result."""

    status: RunStatus
    reason: str
    label: str


def persisted_status(status: BackendStatus, termination: Termination) -> PersistedStatus:
    """The termination counts for what has completed; every other status speaks for itself."""
    match status:
        case Completed():
            return PersistedStatus(RunStatus.DONE, status_reason(termination), RunStatus.DONE.value)
        case WaitingInput():
            return PersistedStatus(RunStatus.WAITING, "input_required", "waiting_input")
        case WaitingAuth():
            return PersistedStatus(RunStatus.WAITING, "auth_required", "waiting_auth")
        case BackendSuspended():
            return PersistedStatus(RunStatus.WAITING, "suspended", "suspended")
        case BackendFailed():
            return PersistedStatus(RunStatus.DONE, "error", "failed")
        case BackendCancelled():
            return PersistedStatus(RunStatus.DONE, "cancelled", "cancelled")
        case TimedOut():
            return PersistedStatus(RunStatus.DONE, "timeout", "timeout")
        case _:
            assert_never(status)


def status_of_termination(termination: Termination | None) -> BackendStatus:
    """How a run of our own loop stands as a backend's; one without an end is at rest."""
    match termination:
        case None:
            return BackendSuspended()
        case NaturalEnd() | BehaviorRequested():
            return Completed()
        case Cancelled():
            return BackendCancelled()
        case Stopped():
            return BackendFailed(status_reason(termination).replace(":", ": ", 1))
        case Blocked(reason):
            return BackendFailed(f"blocked: {reason}")
        case Failed(_, detail):
            return BackendFailed(detail)
        case _:
            assert_never(termination)


# --- what comes out of it -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Something that a run has made beside its answer. Content that isn't text is JSON, or base64."""

    content: Json
    id: str | None = None
    name: str | None = None
    media_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOutput:
    text: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    raw: Json = None

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.artifacts or self.raw is not None)

    def text_or(self, fallback: str) -> str:
        return self.text if self.text is not None else fallback


REMOTE_QUESTION = "remote_question"
"""In a ticket's evidence: what the remote calls that which it asks."""
NO_OUTPUT = BackendOutput()
OUTPUT_KEY = "__runtime_backend_output"
"""Under which the state of a run keeps what its backend has made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteQuestion:
    """One of several things that a remote waits for, under its own name there."""

    name: str
    message: str
    is_login: bool = False
    tool_name: str | None = None
    arguments: Json = None
    actions: frozenset[Action] = frozenset({Action.RESPOND, Action.REJECT})
    response_schema: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendResult:
    """Where a backend's turn has ended. `binding` is what a later turn needs to find the same remote.

    One that waits asks what its status says, unless it has `questions` of its own: then those are all
    that are open there.
    """

    status: BackendStatus
    termination: Termination = field(default_factory=NaturalEnd)
    status_reason: str | None = None
    response: str | None = None
    output: BackendOutput = NO_OUTPUT
    steps: int = 0
    binding: JsonObject | None = None
    questions: tuple[RemoteQuestion, ...] = ()


def output_to_json(output: BackendOutput) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if output.text is not None:
        body["text"] = output.text
    if output.artifacts:
        body["artifacts"] = [artifact_to_json(each) for each in output.artifacts]
    if output.raw is not None:
        body["raw"] = output.raw
    return body


def artifact_to_json(artifact: Artifact) -> dict[str, Any]:
    named = {"id": artifact.id, "name": artifact.name, "media_type": artifact.media_type}
    return {
        **{key: value for key, value in named.items() if value is not None},
        "content": artifact.content,
    }


def output_from_json(raw: JsonObject) -> BackendOutput:
    return BackendOutput(
        text=raw.get("text"),
        artifacts=tuple(Artifact(**each) for each in raw.get("artifacts", ())),
        raw=raw.get("raw"),
    )
