"""The message that is being streamed, assembled from its events before it is in the log."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from app.domain.events.step_events import StreamReset, TextDelta
from app.domain.events.tool_call_events import (
    ToolCallCancel,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStart,
)
from app.domain.json_values import JsonObject


@dataclass(frozen=True, slots=True)
class PartialMessage:
    """The streamed part of a message that isn't in the log yet."""

    text: str = ""
    calls: tuple[JsonObject, ...] = ()


@dataclass(slots=True)
class _PartialCall:
    name: str
    arguments: list[str] = field(default_factory=list)


def partial_message_of(events: Iterable[tuple[str, JsonObject]]) -> PartialMessage:
    """The open message, from the types and fields of the open step's events."""
    text: list[str] = []
    calls: dict[str, _PartialCall] = {}
    for event_type, fields_ in events:
        match event_type:
            case StreamReset.event_type:
                text, calls = [], {}
            case TextDelta.event_type:
                text.append(fields_["delta"])
            case ToolCallStart.event_type:
                calls[fields_["id"]] = _PartialCall(fields_["name"])
            case ToolCallDelta.event_type:
                calls[fields_["id"]].arguments.append(fields_["args_delta"])
            case ToolCallCancel.event_type | ToolCallDone.event_type:
                calls.pop(fields_["id"], None)
    open_calls = tuple(
        {"id": id_, "name": call.name, "arguments": "".join(call.arguments)}
        for id_, call in calls.items()
    )
    return PartialMessage("".join(text), open_calls)
