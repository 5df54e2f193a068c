"""Tool calls: what a tool says of itself, what a call goes through, and what comes out of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from app.domain.ids import CallId, MessageId, RunId
from app.domain.json_values import Json, JsonObject, as_object, compact
from app.domain.signals import EventWait, event_wait_from_json
from app.domain.threads.messages import Message, Role, Text, ToolCall

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
    is_frontend: bool = False
    """Its calls are carried out by the client: here they only ever wait for its answer."""


@dataclass(frozen=True, slots=True)
class SuspensionRequest:
    """A tool's or a gate's wish to have a human asked before the call goes on."""

    message: str
    action: str = ""
    resume_mode: ResumeMode = ResumeMode.REPLAY_TOOL_CALL
    response_schema: JsonObject | None = None
    suspension_id: str | None = None
    event: EventWait | None = None
    """What the call waits for, when that is a signal and not a person."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came out of a call. `metadata` is for programs; the model never reads it."""

    tool_name: str
    status: ResultStatus
    data: Json = None
    message: str | None = None
    suspension: SuspensionRequest | None = None
    metadata: JsonObject | None = None
    may_be_retried: bool = field(default=True, compare=False)
    """Of an error: the same call may do better when it is tried again. A hint, and never stored."""

    @staticmethod
    def success(tool_name: str, data: Json, message: str | None = None) -> "ToolResult":
        return ToolResult(tool_name, ResultStatus.SUCCESS, data, message)

    @staticmethod
    def error(tool_name: str, message: str, *, may_be_retried: bool = True) -> "ToolResult":
        return ToolResult(
            tool_name, ResultStatus.ERROR, None, message, may_be_retried=may_be_retried
        )

    @staticmethod
    def error_with_code(
        tool_name: str, code: str, message: str, *, may_be_retried: bool = True
    ) -> "ToolResult":
        return ToolResult(
            tool_name,
            ResultStatus.ERROR,
            {"error": {"code": code, "message": message}},
            f"[{code}] {message}",
            may_be_retried=may_be_retried,
        )

    @staticmethod
    def suspended(tool_name: str, suspension: SuspensionRequest) -> "ToolResult":
        return ToolResult(tool_name, ResultStatus.PENDING, None, suspension.message, suspension)

    def with_metadata(self, **more: Json) -> "ToolResult":
        return replace(self, metadata={**(self.metadata or {}), **more})

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
        if self.metadata:
            body["metadata"] = dict(self.metadata)
        return body

    def resumed_payload(self) -> Json:
        """What `tool_call_resumed` shows of a result, with its metadata if there is any."""
        match self.status:
            case ResultStatus.SUCCESS:
                return {"data": self.data, **self._shown_metadata} if self.metadata else self.data
            case ResultStatus.ERROR if self.message is not None:
                return {"error": self.message, **self._shown_metadata}
            case ResultStatus.ERROR:
                return {"data": self.data, **self._shown_metadata} if self.metadata else self.data
            case ResultStatus.PENDING:
                return None

    @property
    def _shown_metadata(self) -> dict[str, Json]:
        return {"metadata": dict(self.metadata)} if self.metadata else {}

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


@dataclass(frozen=True, slots=True)
class UnreportedOutcome:
    """What a call came to while calls before it were still running.

    It has its result, so it is never executed again; it is told when its turn comes. `changes` are the
    updates of state that it asked for, by key: once told they stay here without the result, because
    calls behind it that ran at the same time may not change the same.
    """

    result: ToolResult | None
    changes: tuple[tuple[str, Json], ...] = ()


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
    unreported_outcome: UnreportedOutcome | None = None

    @property
    def effective_arguments(self) -> Json:
        return self.call.arguments if self.run_with is None else self.run_with

    @property
    def unreported(self) -> ToolResult | None:
        """The result that is known and isn't in the log yet."""
        return None if self.unreported_outcome is None else self.unreported_outcome.result

    @property
    def is_answered(self) -> bool:
        """Its result is in the log."""
        return self.status.is_final and self.unreported is None


def outcome_to_json(kept: UnreportedOutcome) -> dict[str, Any]:
    result = kept.result
    return {
        "result": None
        if result is None
        else {
            "status": result.status.value,
            "data": result.data,
            "message": result.message,
            "metadata": result.metadata,
            "suspension": None if result.suspension is None else asdict(result.suspension),
        },
        "changes": [list(change) for change in kept.changes],
    }


def outcome_from_json(tool_name: str, raw: Mapping[str, Any]) -> UnreportedOutcome:
    result = raw["result"]
    return UnreportedOutcome(
        None if result is None else _result_from_json(tool_name, result),
        tuple((key, update) for key, update in raw["changes"]),
    )


def _result_from_json(tool_name: str, raw: Mapping[str, Any]) -> ToolResult:
    asked = raw["suspension"]
    return ToolResult(
        tool_name,
        ResultStatus(raw["status"]),
        raw["data"],
        raw["message"],
        None if asked is None else _suspension_from_json(asked),
        raw["metadata"],
    )


def _suspension_from_json(raw: Mapping[str, Any]) -> SuspensionRequest:
    event = raw.get("event")
    return SuspensionRequest(
        **{
            **raw,
            "resume_mode": ResumeMode(raw["resume_mode"]),
            "event": None if event is None else event_wait_from_json(event),
        }
    )


def idempotency_key(run_id: RunId, step_index: int, call_id: CallId) -> str:
    """The same for every attempt at a call, different for every call."""
    return f"{run_id}:{step_index}:{call_id}"
