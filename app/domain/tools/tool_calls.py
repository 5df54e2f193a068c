"""Tool calls: descriptors of tools, the states of a call, and its result."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from app.domain.ids import CallId, MessageId, RunId
from app.domain.json_values import Json, JsonObject, as_object, compact
from app.domain.signals import EventWait, event_wait_from_json
from app.domain.structs import replace
from app.domain.threads.messages import (
    Media,
    Message,
    Role,
    Text,
    ToolCall,
    block_from_json,
    block_to_json,
    call_result_to_json,
)

INTERRUPTED = "[Tool execution was interrupted]"


class Effect(StrEnum):
    """Whether running a call twice is safe."""

    READ = "read"
    IDEMPOTENT = "idempotent"
    UNSAFE = "unsafe"

    @property
    def may_be_rerun(self) -> bool:
        return self is not Effect.UNSAFE


class CallStatus(StrEnum):
    """The status of a call of an open step.

    `pending`: never started. `running`: marked before its tool got it, so after a crash its outcome is
    unknown. `suspended`: waits for a ticket. The others have a result.
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


class ResumeMode(StrEnum):
    """How a decision is used."""

    REPLAY_TOOL_CALL = "replay_tool_call"
    USE_DECISION_AS_TOOL_RESULT = "use_decision_as_tool_result"
    PASS_DECISION_TO_TOOL = "pass_decision_to_tool"


class ResultStatus(StrEnum):
    SUCCESS = "success"
    PENDING = "pending"
    ERROR = "error"


class ToolDescriptor(Struct, frozen=True, kw_only=True):
    """The description of a tool for models, approvers and the loop."""

    name: str
    description: str
    parameters: JsonObject
    effect: Effect = Effect.UNSAFE
    timeout: float | None = None
    retries: int = 0
    """Retries of a failing call; only for tools whose effect allows a rerun."""
    response_schema: JsonObject | None = None
    is_frontend: bool = False
    """The client executes its calls; here they only wait for the result."""
    digest: str | None = None
    """A digest of a description that may change without a new agent version. Approvals are bound to it."""
    source: str | None = None
    """The MCP server of the tool."""
    is_offered: bool = True
    """Whether models see it. One that isn't offered only completes calls that were made when it was."""


class SuspensionRequest(Struct, frozen=True):
    """A tool's or the gate's request to suspend the call until a decision or a signal comes."""

    message: str
    action: str = ""
    resume_mode: ResumeMode = ResumeMode.REPLAY_TOOL_CALL
    response_schema: JsonObject | None = None
    suspension_id: str | None = None
    event: EventWait | None = None
    """The awaited event, if the call waits for a signal and not for a person."""
    carry: JsonObject | None = None
    """What the tool needs to continue the call after the decision. No client sees it."""


class ToolResult(Struct, frozen=True):
    """The result of a call. `metadata` is for programs; the model never reads it."""

    tool_name: str
    status: ResultStatus
    data: Json = None
    message: str | None = None
    suspension: SuspensionRequest | None = None
    metadata: JsonObject | None = None
    media: tuple[Media, ...] = ()
    """Files that the model reads behind the text."""
    may_be_retried: bool = True
    """For errors: whether a retry may succeed. A hint, which is never stored."""

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
        """What the model reads: the message if there is one, else the data, as JSON unless it is a string."""
        if self.message is not None:
            return self.message
        return self.data if isinstance(self.data, str) else compact(self.data)

    def to_json(self, status: CallStatus) -> dict[str, Any]:
        """The result as events and the log show it: the text that the model reads, and what else there is."""
        return call_result_to_json(self.text, self._stored(status), self.media)

    def _stored(self, status: CallStatus) -> dict[str, Json]:
        body: dict[str, Json] = {"status": status.value}
        if self.data is not None and self.data != self.text:
            body["data"] = self.data
        if self.metadata:
            body["metadata"] = dict(self.metadata)
        return body

    def as_message(
        self,
        message_id: MessageId,
        call_id: CallId,
        status: CallStatus,
        edited_arguments: JsonObject | None = None,
    ) -> Message:
        return Message(
            id=message_id,
            role=Role.TOOL,
            content=(Text(self.text), *self.media),
            tool_call_id=call_id,
            edited_arguments=edited_arguments,
            result=self._stored(status),
        )


def result_of_response(tool_name: str, response: Json) -> ToolResult:
    """The result from a person's response instead of the tool's: `{"error": …}` counts as an error."""
    body = as_object(response)
    if body is not None and set(body) == {"error"}:
        return ToolResult.error(tool_name, str(body["error"]))
    return ToolResult.success(tool_name, response)


class UnreportedOutcome(Struct, frozen=True):
    """The stored result of a call that wasn't reported yet, because calls before it still run.

    The call is never executed again; its result is reported in order. `changes` are its state updates by
    key. They stay here after the report, because parallel calls behind it must not change the same keys.
    """

    result: ToolResult | None
    changes: tuple[tuple[str, Json], ...] = ()


class CallState(Struct, frozen=True, kw_only=True):
    """One call of an open step, stored until the step is complete.

    `edited_arguments` are the arguments as a person edited them; without an edit the model's arguments count.
    """

    call: ToolCall
    step_index: int
    position: int
    status: CallStatus
    effect: Effect
    idempotency_key: str
    edited_arguments: JsonObject | None = None
    unreported_outcome: UnreportedOutcome | None = None
    tool_digest: str | None = None
    """The digest of the tool's description when the model called it, for tools that have one."""

    @property
    def effective_arguments(self) -> Json:
        return self.call.arguments if self.edited_arguments is None else self.edited_arguments

    @property
    def unreported_result(self) -> ToolResult | None:
        """The known result that isn't in the log yet."""
        return None if self.unreported_outcome is None else self.unreported_outcome.result

    @property
    def is_answered(self) -> bool:
        """Whether its result is in the log."""
        return self.status.is_final and self.unreported_result is None


def outcome_to_json(outcome: UnreportedOutcome) -> dict[str, Any]:
    result = outcome.result
    return {
        "result": None
        if result is None
        else {
            "status": result.status.value,
            "data": result.data,
            "message": result.message,
            "metadata": result.metadata,
            "suspension": None
            if result.suspension is None
            else _suspension_to_json(result.suspension),
            **_media_to_json(result.media),
        },
        "changes": [list(change) for change in outcome.changes],
    }


def outcome_from_json(tool_name: str, raw: Mapping[str, Any]) -> UnreportedOutcome:
    result = raw["result"]
    return UnreportedOutcome(
        None if result is None else _result_from_json(tool_name, result),
        tuple((key, update) for key, update in raw["changes"]),
    )


def _media_to_json(media: Sequence[Media]) -> dict[str, Any]:
    """Nothing without media: releases before them read the other keys."""
    return {"media": [block_to_json(each) for each in media]} if media else {}


def _result_from_json(tool_name: str, raw: Mapping[str, Any]) -> ToolResult:
    suspension = raw["suspension"]
    return ToolResult(
        tool_name,
        ResultStatus(raw["status"]),
        raw["data"],
        raw["message"],
        None if suspension is None else _suspension_from_json(suspension),
        raw["metadata"],
        tuple(
            block
            for each in raw.get("media", ())
            if isinstance(block := block_from_json(each), Media)
        ),
    )


def _suspension_to_json(suspension: SuspensionRequest) -> dict[str, Any]:
    """Without `carry` if there is none: releases before it can't read that key."""
    body = asdict(suspension)
    body["event"] = None if suspension.event is None else asdict(suspension.event)
    if suspension.carry is None:
        del body["carry"]
    return body


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
