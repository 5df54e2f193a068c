"""The message that is being streamed, assembled from its events before it is in the log."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from app.domain.events.step_events import MessageDone, ReasoningDelta, StreamReset, TextDelta
from app.domain.events.tool_call_events import (
    ToolCallCancel,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStart,
)
from app.domain.json_values import JsonObject

EVENTS_OF_PARTIAL_MESSAGES = (
    StreamReset.event_type,
    TextDelta.event_type,
    ReasoningDelta.event_type,
    MessageDone.event_type,
    ToolCallStart.event_type,
    ToolCallDelta.event_type,
    ToolCallCancel.event_type,
    ToolCallDone.event_type,
)


class PartialMessage(Struct, frozen=True):
    """The streamed part of a message that isn't in the log yet."""

    text: str = ""
    reasoning: str = ""
    calls: tuple["OpenCall", ...] = ()
    message_id: str | None = None
    """The id of the message, once it is complete; the log may have it already."""


class OpenCall(Struct, frozen=True):
    """A tool call that is being written. `arguments` is JSON, perhaps not yet complete."""

    tool_call_id: str
    name: str
    arguments: str


@dataclass(slots=True)
class _PartialCall:
    name: str
    arguments: list[str] = field(default_factory=list)


def partial_message_of(events: Iterable[tuple[str, JsonObject]]) -> PartialMessage:
    """The open message, from the types and fields of the open step's events."""
    text: list[str] = []
    reasoning: list[str] = []
    message_id: str | None = None
    calls: dict[str, _PartialCall] = {}
    for event_type, fields_ in events:
        match event_type:
            case StreamReset.event_type:
                text, reasoning, calls, message_id = [], [], {}, None
            case TextDelta.event_type:
                text.append(fields_["delta"])
            case ReasoningDelta.event_type:
                reasoning.append(fields_["delta"])
            case MessageDone.event_type:
                message_id = fields_["message"]["id"]
            case ToolCallStart.event_type:
                calls[fields_["tool_call_id"]] = _PartialCall(fields_["name"])
            case ToolCallDelta.event_type:
                calls[fields_["tool_call_id"]].arguments.append(fields_["args_delta"])
            case ToolCallCancel.event_type | ToolCallDone.event_type:
                calls.pop(fields_["tool_call_id"], None)
    open_calls = tuple(
        OpenCall(id_, call.name, "".join(call.arguments)) for id_, call in calls.items()
    )
    return PartialMessage("".join(text), "".join(reasoning), open_calls, message_id)
