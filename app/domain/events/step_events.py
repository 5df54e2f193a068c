"""Events of a step and of its inference. Steps of one activation never interleave.

All `tool_call_ready` of a step come before its `inference_complete`, and that before its `message_done`.
"""

from typing import ClassVar

from msgspec import Struct

from app.domain.json_values import JsonObject


class StepStart(Struct, frozen=True):
    """A step begins: one inference and its tool calls. `message_id` is the id of the answer to come."""

    event_type: ClassVar[str] = "step_start"
    message_id: str


class StepEnd(Struct, frozen=True):
    """The step's checkpoint is committed."""

    event_type: ClassVar[str] = "step_end"


class TextDelta(Struct, frozen=True):
    """The model sent a piece of text."""

    event_type: ClassVar[str] = "text_delta"
    delta: str


class ReasoningDelta(Struct, frozen=True):
    """The model sent a piece of its reasoning."""

    event_type: ClassVar[str] = "reasoning_delta"
    delta: str


class ReasoningEncryptedValue(Struct, frozen=True):
    """Reserved: a provider's opaque reasoning. This version doesn't emit it."""

    event_type: ClassVar[str] = "reasoning_encrypted_value"
    encrypted_value: str


class StreamReset(Struct, frozen=True):
    """The client discards every event since this step's `step_start`."""

    event_type: ClassVar[str] = "stream_reset"
    reason: str


class MessageDone(Struct, frozen=True):
    """The model's answer as the log has it, complete or cut short. No delta of it follows."""

    event_type: ClassVar[str] = "message_done"
    message: JsonObject


class InferenceRetry(Struct, frozen=True):
    """A model is asked again after `wait_ms`, because a request failed or its answer was interrupted."""

    event_type: ClassVar[str] = "inference_retry"
    attempt: int
    reason: str
    wait_ms: int


class InferenceComplete(Struct, frozen=True):
    """The model's answer is complete. `usage` is the provider's count of tokens, if it gives one."""

    event_type: ClassVar[str] = "inference_complete"
    model: str
    duration_ms: int
    usage: JsonObject | None = None
    first_token_ms: int | None = None
    """How long the model took until its first output; missing if there was none."""
    finish_reason: str | None = None
    """Why the model stopped: `end_turn`, `tool_use`, `max_tokens`, `stop_sequence` or `content_filter`."""


STEP_START = StepStart.event_type
STEP_END = StepEnd.event_type
