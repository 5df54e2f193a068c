"""Events of a step and of its inference. Steps of one activation never interleave.

All `tool_call_ready` of a step come before its `inference_complete`, and that before its `message_done`.
"""

from dataclasses import dataclass
from typing import ClassVar

from app.domain.json_values import JsonObject


@dataclass(frozen=True, slots=True)
class StepStart:
    event_type: ClassVar[str] = "step_start"
    message_id: str


@dataclass(frozen=True, slots=True)
class StepEnd:
    event_type: ClassVar[str] = "step_end"


@dataclass(frozen=True, slots=True)
class TextDelta:
    event_type: ClassVar[str] = "text_delta"
    delta: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    event_type: ClassVar[str] = "reasoning_delta"
    delta: str


@dataclass(frozen=True, slots=True)
class ReasoningEncryptedValue:
    event_type: ClassVar[str] = "reasoning_encrypted_value"
    encrypted_value: str


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The client discards every event since this step's `step_start`."""

    event_type: ClassVar[str] = "stream_reset"
    reason: str


@dataclass(frozen=True, slots=True)
class MessageDone:
    """The model's answer as the log has it, complete or cut short. No delta of it follows."""

    event_type: ClassVar[str] = "message_done"
    message: JsonObject


@dataclass(frozen=True, slots=True)
class InferenceRetry:
    """A model is asked again after `wait_ms`, because a request failed or its answer was interrupted."""

    event_type: ClassVar[str] = "inference_retry"
    attempt: int
    reason: str
    wait_ms: int


@dataclass(frozen=True, slots=True)
class InferenceComplete:
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
