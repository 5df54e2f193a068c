"""The known part of an A2A task: its state, its messages and its artifacts.

The remote sends snapshots and updates, some of them twice. This merges them.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field

from a2a.types import a2a_pb2 as wire
from google.protobuf.json_format import MessageToDict

from app.backends.base import BackendError
from app.domain.agents.backend_results import (
    Artifact,
    BackendCancelled,
    BackendFailed,
    BackendOutput,
    BackendResult,
    BackendStatus,
    Completed,
    WaitingAuth,
    WaitingInput,
)
from app.domain.json_values import Json, JsonObject

MAX_ARTIFACT_BYTES = 64 * 1024 * 1024
"""Bytes that the artifacts of one turn may stream."""
BETWEEN_ARTIFACTS = "\n\n"
_EXACT = 2**53
_NAMES = {
    wire.TASK_STATE_SUBMITTED: "submitted",
    wire.TASK_STATE_WORKING: "working",
    wire.TASK_STATE_COMPLETED: "completed",
    wire.TASK_STATE_FAILED: "failed",
    wire.TASK_STATE_CANCELED: "canceled",
    wire.TASK_STATE_INPUT_REQUIRED: "input_required",
    wire.TASK_STATE_REJECTED: "rejected",
    wire.TASK_STATE_AUTH_REQUIRED: "auth_required",
}
QUESTION_STATES = frozenset({"input_required", "auth_required"})
_SETTLED = QUESTION_STATES | {"completed", "failed", "canceled", "rejected"}


@dataclass(slots=True)
class RemoteTask:
    task_id: str = ""
    context_id: str = ""
    state: str = "submitted"
    status_message: str = ""
    """The message of the newest state: a question, a reason or progress."""
    _artifacts: dict[str, wire.Artifact] = field(default_factory=dict)
    _artifact_bytes: int = 0
    """Of all artifact updates since the last snapshot of the task."""
    _last_message: str = ""

    @staticmethod
    def from_binding(binding: JsonObject) -> "RemoteTask":
        """Whether the task's state may still be the question that was already answered."""
        return RemoteTask(
            task_id=binding.get("task_id", ""), context_id=binding.get("context_id", "")
        )

    @property
    def is_settled(self) -> bool:
        return self.state in _SETTLED

    @property
    def binding(self) -> JsonObject:
        return {
            "task_id": self.task_id,
            "context_id": self.context_id,
            "last_state": self.state,
        }

    # --- receiving ------------------------------------------------------------------------------

    def update(self, response: wire.StreamResponse) -> None:
        match response.WhichOneof("payload"):
            case "task":
                self.update_task(response.task)
            case "message":
                self._identify("", response.message.context_id)
                self._last_message = text_of(response.message.parts)
                self.state = "completed"
            case "status_update":
                update = response.status_update
                self._identify(update.task_id, update.context_id)
                self._take_status(update.status)
            case "artifact_update":
                self._identify(
                    response.artifact_update.task_id, response.artifact_update.context_id
                )
                self._take_artifact(response.artifact_update)
            case _:
                return

    def update_task(self, task: wire.Task) -> None:
        self._artifact_bytes = 0
        self._identify(task.id, task.context_id)
        self._artifacts = {artifact.artifact_id: artifact for artifact in task.artifacts}
        texts = [text_of(each.parts) for each in task.history if each.role == wire.ROLE_AGENT]
        self._last_message = texts[-1] if texts else self._last_message
        self._take_status(task.status)

    def _identify(self, task_id: str, context_id: str) -> None:
        self.task_id = task_id or self.task_id
        self.context_id = context_id or self.context_id

    def _take_status(self, status: wire.TaskStatus) -> None:
        self.state = _NAMES.get(status.state, self.state)
        if status.HasField("message"):
            self.status_message = text_of(status.message.parts)
        elif self.is_settled:
            self.status_message = ""

    def _take_artifact(self, update: wire.TaskArtifactUpdateEvent) -> None:
        new = update.artifact
        self._artifact_bytes += new.ByteSize()
        if self._artifact_bytes > MAX_ARTIFACT_BYTES:
            raise BackendError(
                "remote_too_long",
                f"The remote agent sent over {MAX_ARTIFACT_BYTES} bytes of artifacts in one turn.",
            )
        known = self._artifacts.get(new.artifact_id)
        if update.append and known is not None:
            known.parts.extend(new.parts)
        else:
            self._artifacts[new.artifact_id] = new

    # --- the result -----------------------------------------------------------------------------

    @property
    def reply_text(self) -> str:
        """The text of the artifacts so far. It grows while they are streamed."""
        texts = [text_of(artifact.parts) for artifact in self._artifacts.values()]
        return BETWEEN_ARTIFACTS.join(text for text in texts if text)

    @property
    def text(self) -> str:
        """The text of the artifacts, else of the state's message, else of the last message."""
        return self.reply_text or self.status_message or self._last_message

    @property
    def progress(self) -> dict[str, Json]:
        return {
            "schema": "a2a-task-progress.v1",
            "task_id": self.task_id,
            "state": self.state,
            "text": self.status_message,
            "artifacts": [artifact.artifact_id for artifact in self._artifacts.values()],
        }

    @property
    def result(self) -> BackendResult:
        """The result of a settled task."""
        asks = self.state in QUESTION_STATES
        text = self.text if asks or self.state == "completed" else self.reply_text
        return BackendResult(
            status=self._status(),
            status_reason=self.state if asks else None,
            output=BackendOutput(text=text or None, artifacts=tuple(self._output())),
            steps=1,
            binding=self.binding,
        )

    def _status(self) -> BackendStatus:
        match self.state:
            case "completed":
                return Completed()
            case "input_required":
                return WaitingInput(self.status_message or self._last_message or None)
            case "auth_required":
                return WaitingAuth(self.status_message or self._last_message or None)
            case "canceled":
                return BackendCancelled()
            case state:
                return BackendFailed(self.status_message or f"the remote agent's task is {state}")

    def _output(self) -> Iterable[Artifact]:
        for artifact in self._artifacts.values():
            kinds = {part.WhichOneof("content") for part in artifact.parts}
            if kinds == {"text"}:
                yield _artifact(artifact, artifact.artifact_id, text_of(artifact.parts))
                continue
            for place, part in enumerate(artifact.parts):
                name = artifact.artifact_id if place == 0 else f"{artifact.artifact_id}#{place}"
                yield _artifact(artifact, name, _content(part), part)


def _artifact(
    artifact: wire.Artifact, id: str, content: Json, part: wire.Part | None = None
) -> Artifact:
    part = part or artifact.parts[0]
    kind = part.WhichOneof("content")
    usual = {"text": "text/plain", "data": "application/json"}.get(kind or "")
    return Artifact(
        id=id,
        name=part.filename or artifact.name or None,
        media_type=part.media_type or usual,
        content=content,
        is_base64=kind == "raw",
    )


def _content(part: wire.Part) -> Json:
    match part.WhichOneof("content"):
        case "text":
            return part.text
        case "raw":
            return base64.b64encode(part.raw).decode()
        case "url":
            return {"url": part.url}
        case "data":
            return _as_written(MessageToDict(part.data))
        case _:
            return None


def _as_written(value: Json) -> Json:
    """The protocol has only floats. A float without a fraction becomes the integer that was written."""
    match value:
        case float() if value.is_integer() and abs(value) <= _EXACT:
            return int(value)
        case dict():
            return {key: _as_written(each) for key, each in value.items()}
        case list():
            return [_as_written(each) for each in value]
        case _:
            return value


def text_of(parts: Iterable[wire.Part]) -> str:
    return "".join(part.text for part in parts if part.WhichOneof("content") == "text")
