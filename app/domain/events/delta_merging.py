"""Merges adjacent deltas of the event log, once no live reader needs each of them.

Only neighbours are merged, so an event between two deltas keeps its position. The sequence ranges of merged
deltas never overlap, and the last number of a range still works as a resume position.
"""

from collections.abc import Iterable

from msgspec import Struct

from app.domain.events.agent_events import DELTA_EVENTS
from app.domain.events.event_sizes import MAX_DELTA_BYTES
from app.domain.events.tool_call_events import ToolCallDelta
from app.domain.json_values import JsonObject
from app.domain.structs import replace

_TEXT = {
    event_type: "args_delta" if event_type == ToolCallDelta.event_type else "delta"
    for event_type in DELTA_EVENTS
}


class LoggedDelta(Struct, frozen=True, kw_only=True):
    """A delta of a run, with the range of sequence numbers that it covers."""

    from_seq: int
    seq: int
    step: int | None
    event_type: str
    fields: JsonObject

    @property
    def text(self) -> str:
        return str(self.fields[_TEXT[self.event_type]])


def merge_logged_deltas(deltas: Iterable[LoggedDelta]) -> list[LoggedDelta]:
    """The merged deltas in order. A delta without a neighbour to merge with isn't among them."""
    merged: list[LoggedDelta] = []
    group: list[LoggedDelta] = []
    length = 0
    for delta in deltas:
        if group and not (
            _continues(group[-1], delta) and length + len(delta.text) <= MAX_DELTA_BYTES
        ):
            merged += _merged(group)
            group, length = [], 0
        group.append(delta)
        length += len(delta.text)
    return merged + _merged(group)


def _continues(last: LoggedDelta, delta: LoggedDelta) -> bool:
    return delta.from_seq == last.seq + 1 and _target(delta) == _target(last)


def _target(delta: LoggedDelta) -> tuple[object, ...]:
    """What the delta is a part of: its step, type and other fields."""
    text = _TEXT[delta.event_type]
    others = sorted((key, str(value)) for key, value in delta.fields.items() if key != text)
    return delta.step, delta.event_type, others


def _merged(group: list[LoggedDelta]) -> list[LoggedDelta]:
    if len(group) < 2:
        return []
    last = group[-1]
    text = "".join(delta.text for delta in group)
    fields = {**last.fields, _TEXT[last.event_type]: text}
    return [replace(last, from_seq=group[0].from_seq, fields=fields)]
