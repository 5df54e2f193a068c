"""The message that is being said: put together from its events, before it is in the log."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from app.domain.events.run_events import (
    StreamReset,
    TextDelta,
    ToolCallCancel,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStart,
)
from app.domain.json_values import JsonObject


@dataclass(frozen=True, slots=True)
class PartialMessage:
    """What has been said of a message that isn't in the log yet."""

    text: str = ""
    calls: tuple[JsonObject, ...] = ()


@dataclass(slots=True)
class _PartialCall:
    name: str
    arguments: list[str] = field(default_factory=list)


def partial_message_of(said: Iterable[tuple[str, JsonObject]]) -> PartialMessage:
    """The open message, from the events of the open step: type and fields of each."""
    text: list[str] = []
    calls: dict[str, _PartialCall] = {}
    for event_type, fields_ in said:
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
