"""Tool calls: what a tool says of itself, what a call goes through, and what comes out of it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.domain.ids import CallId, MessageId, RunId
from app.domain.json_values import Json, JsonObject, as_object, compact
from app.domain.messages import Message, Role, Text, ToolCall

INTERRUPTED = "[Tool execution was interrupted]"


class Effect(StrEnum):
    """What running a call twice would do."""

    READ = "read"
    IDEMPOTENT = "idempotent"
    UNSAFE = "unsafe"

    @property
    def may_be_rerun(self) -> bool:
        return self is not Effect.UNSAFE


class CallStatus(StrEnum):
    """Where a call of an open step stands.

    `pending` never started; `running` was marked before its tool got it, so without a result its
    outcome is unknown; `suspended` waits for a ticket; the rest have their result.
    """

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (CallStatus.SUCCEEDED, CallStatus.FAILED, CallStatus.CANCELLED)


CALL_TRANSITIONS: dict[CallStatus, frozenset[CallStatus]] = {
    CallStatus.PENDING: frozenset(CallStatus),
    CallStatus.RUNNING: frozenset(CallStatus) - {CallStatus.PENDING},
    CallStatus.SUSPENDED: frozenset(CallStatus) - {CallStatus.PENDING},
    CallStatus.SUCCEEDED: frozenset({CallStatus.SUCCEEDED}),
    CallStatus.FAILED: frozenset({CallStatus.FAILED}),
    CallStatus.CANCELLED: frozenset({CallStatus.CANCELLED}),
}


class ResumeMode(StrEnum):
    """How a decision is used once it is there."""

    REPLAY_TOOL_CALL = "replay_tool_call"
    USE_DECISION_AS_TOOL_RESULT = "use_decision_as_tool_result"
    PASS_DECISION_TO_TOOL = "pass_decision_to_tool"


class ResultStatus(StrEnum):
    SUCCESS = "success"
    PENDING = "pending"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDescriptor:
    """What a model and an approver may know of a tool."""

    name: str
    description: str
    parameters: JsonObject
    effect: Effect = Effect.UNSAFE
    timeout: float | None = None
    retries: int = 0
    """Times that a call is tried again when it fails; only of a tool that may be run again."""
    response_schema: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class SuspensionRequest:
    """A tool's or a gate's wish to have a human asked before the call goes on."""

    message: str
    action: str = ""
    resume_mode: ResumeMode = ResumeMode.REPLAY_TOOL_CALL
    response_schema: JsonObject | None = None
    suspension_id: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    tool_name: str
    status: ResultStatus
    data: Json = None
    message: str | None = None
    suspension: SuspensionRequest | None = None

    @staticmethod
    def success(tool_name: str, data: Json) -> "ToolResult":
        return ToolResult(tool_name, ResultStatus.SUCCESS, data)

    @staticmethod
    def error(tool_name: str, message: str) -> "ToolResult":
        return ToolResult(tool_name, ResultStatus.ERROR, None, message)

    @staticmethod
    def suspended(tool_name: str, suspension: SuspensionRequest) -> "ToolResult":
        return ToolResult(tool_name, ResultStatus.PENDING, None, suspension.message, suspension)

    @property
    def text(self) -> str:
        """What the model reads: the message when there is one, a plain string as it is, else JSON."""
        if self.message is not None:
            return self.message
        return self.data if isinstance(self.data, str) else compact(self.data)

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "tool_name": self.tool_name,
            "status": self.status.value,
            "data": self.data,
            "message": self.message,
        }
        if self.suspension is not None:
            body["suspension"] = {
                "action": self.suspension.action,
                "message": self.suspension.message,
                "resume_mode": self.suspension.resume_mode.value,
            }
        return body

    def resumed_payload(self) -> Json:
        """What `tool_call_resumed` shows of a result."""
        match self.status:
            case ResultStatus.SUCCESS:
                return self.data
            case ResultStatus.ERROR:
                return self.data if self.message is None else {"error": self.message}
            case ResultStatus.PENDING:
                return None

    def as_message(
        self, message_id: MessageId, call_id: CallId, ran_with: JsonObject | None = None
    ) -> Message:
        return Message(
            id=message_id,
            role=Role.TOOL,
            content=(Text(self.text),),
            tool_call_id=call_id,
            ran_with=ran_with,
        )


def result_of_response(tool_name: str, response: Json) -> ToolResult:
    """A human's answer in place of a tool's: `{"error": …}` counts as an error."""
    body = as_object(response)
    if body is not None and set(body) == {"error"}:
        return ToolResult.error(tool_name, str(body["error"]))
    return ToolResult.success(tool_name, response)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallState:
    """One call of an open step, as it is kept until the step is complete.

    `arguments` are the model's; `run_with` are a human's edit of them, when there is one.
    """

    call: ToolCall
    step_index: int
    position: int
    status: CallStatus
    effect: Effect
    idempotency_key: str
    run_with: JsonObject | None = None

    @property
    def effective_arguments(self) -> Json:
        return self.call.arguments if self.run_with is None else self.run_with


def idempotency_key(run_id: RunId, step_index: int, call_id: CallId) -> str:
    """The same for every attempt at a call, different for every call."""
    return f"{run_id}:{step_index}:{call_id}"
