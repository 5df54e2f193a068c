"""The status and output of a run at a backend.

A backend executes runs: it is the loop of this server, or a remote agent.
"""

from typing import Any, TypeAlias, assert_never

from msgspec import Struct

from app.domain.ids import CallId, FileId
from app.domain.json_values import Json, JsonObject, without_none
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

# --- status ---------------------------------------------------------------------------------------


class Completed(Struct, frozen=True):
    """The run has ended; the termination says how."""


class WaitingInput(Struct, frozen=True):
    message: str | None = None


class WaitingAuth(Struct, frozen=True):
    message: str | None = None


class BackendSuspended(Struct, frozen=True):
    """The run waits for something that is neither input nor a login."""

    message: str | None = None


class BackendFailed(Struct, frozen=True):
    message: str


class BackendCancelled(Struct, frozen=True):
    pass


class TimedOut(Struct, frozen=True):
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


class PersistedStatus(Struct, frozen=True):
    """A backend's status as it is stored: the run's status and a one-line reason."""

    status: RunStatus
    reason: str


def persisted_status(status: BackendStatus, termination: Termination) -> PersistedStatus:
    """The stored form of a status. Only `Completed` takes its reason from the termination."""
    match status:
        case Completed():
            return PersistedStatus(RunStatus.DONE, status_reason(termination))
        case WaitingInput():
            return PersistedStatus(RunStatus.WAITING, "input_required")
        case WaitingAuth():
            return PersistedStatus(RunStatus.WAITING, "auth_required")
        case BackendSuspended():
            return PersistedStatus(RunStatus.WAITING, "suspended")
        case BackendFailed():
            return PersistedStatus(RunStatus.DONE, "error")
        case BackendCancelled():
            return PersistedStatus(RunStatus.DONE, "cancelled")
        case TimedOut():
            return PersistedStatus(RunStatus.DONE, "timeout")
        case _:
            assert_never(status)


def status_of_termination(termination: Termination | None) -> BackendStatus:
    """The status of a run of the loop; without a termination it is suspended."""
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


# --- output ---------------------------------------------------------------------------------------


class SavedBytes(Struct, frozen=True, kw_only=True):
    """The bytes of an artifact's file. `call_id` names the call of the tool that has saved it."""

    size: int
    sha256: str
    call_id: CallId | None = None


class Artifact(Struct, frozen=True, kw_only=True):
    """A result of a run besides its answer: of a remote agent its content, of a tool a file.

    Content that isn't text is JSON or base64. The id of a tool's artifact is that of its file.
    """

    content: Json = None
    id: str | None = None
    name: str | None = None
    media_type: str | None = None
    file_id: FileId | None = None
    """The file with the bytes of a remote agent's artifact."""
    is_base64: bool = False
    """Whether the content is known to be base64. It isn't stored."""
    saved: SavedBytes | None = None


class BackendOutput(Struct, frozen=True, kw_only=True):
    text: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    raw: Json = None

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.artifacts or self.raw is not None)

    def text_or(self, fallback: str) -> str:
        return self.text if self.text is not None else fallback


REMOTE_QUESTION = "remote_question"
"""Key in a ticket's evidence: the question's name at the remote."""
NO_OUTPUT = BackendOutput()
OUTPUT_KEY = "__runtime_backend_output"
"""Key of the backend's output in a run's state."""


class RemoteQuestion(Struct, frozen=True, kw_only=True):
    """One of several questions of a remote, with its name there."""

    name: str
    message: str
    is_login: bool = False
    tool_name: str | None = None
    arguments: Json = None
    actions: frozenset[Action] = frozenset({Action.RESPOND, Action.REJECT})
    response_schema: JsonObject | None = None


class BackendResult(Struct, frozen=True, kw_only=True):
    """The end of a backend's turn. `binding` lets a later turn find the same remote run.

    If the remote waits, `questions` are its open questions; without them the status has the only one.
    """

    status: BackendStatus
    termination: Termination = NaturalEnd()
    status_reason: str | None = None
    response: str | None = None
    output: BackendOutput = NO_OUTPUT
    steps: int = 0
    binding: JsonObject | None = None
    questions: tuple[RemoteQuestion, ...] = ()


def output_to_json(output: BackendOutput) -> dict[str, Any]:
    artifacts = [artifact_to_json(each) for each in output.artifacts] or None
    return without_none({"text": output.text, "artifacts": artifacts, "raw": output.raw})


def artifact_to_json(artifact: Artifact) -> dict[str, Any]:
    named = {
        "id": artifact.id,
        "name": artifact.name,
        "media_type": artifact.media_type,
        "file_id": artifact.file_id,
    }
    return {**without_none(named), "content": artifact.content}


def output_from_json(raw: JsonObject) -> BackendOutput:
    return BackendOutput(
        text=raw.get("text"),
        artifacts=tuple(Artifact(**each) for each in raw.get("artifacts", ())),
        raw=raw.get("raw"),
    )
