"""Deltas that have been logged, put together again once nobody waits for each of them.

Only neighbours are joined: whatever stands between two deltas keeps its place, so the stretches that
the joined ones stand for never overlap, and a number at the end of one still means all up to there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from app.domain.events.event_sizes import MAX_DELTA_BYTES
from app.domain.events.run_events import DELTA_EVENTS, ToolCallDelta
from app.domain.json_values import JsonObject

_TEXT = {
    event_type: "args_delta" if event_type == ToolCallDelta.event_type else "delta"
    for event_type in DELTA_EVENTS
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDelta:
    """A delta of a run, under the last of the numbers that it stands for."""

    from_seq: int
    seq: int
    step: int | None
    event_type: str
    fields: JsonObject

    @property
    def text(self) -> str:
        return str(self.fields[_TEXT[self.event_type]])


def merge_logged_deltas(deltas: Iterable[LoggedDelta]) -> list[LoggedDelta]:
    """Those of several neighbours that became one, in order; what stays alone isn't among them."""
    made: list[LoggedDelta] = []
    group: list[LoggedDelta] = []
    length = 0
    for delta in deltas:
        if group and not (
            _continues(group[-1], delta) and length + len(delta.text) <= MAX_DELTA_BYTES
        ):
            made += _as_one(group)
            group, length = [], 0
        group.append(delta)
        length += len(delta.text)
    return made + _as_one(group)


def _continues(last: LoggedDelta, delta: LoggedDelta) -> bool:
    return delta.from_seq == last.seq + 1 and _message(delta) == _message(last)


def _message(delta: LoggedDelta) -> tuple[object, ...]:
    """What a delta is a piece of."""
    text = _TEXT[delta.event_type]
    rest = sorted((key, str(value)) for key, value in delta.fields.items() if key != text)
    return delta.step, delta.event_type, rest


def _as_one(group: list[LoggedDelta]) -> list[LoggedDelta]:
    if len(group) < 2:
        return []
    last = group[-1]
    text = "".join(delta.text for delta in group)
    fields = {**last.fields, _TEXT[last.event_type]: text}
    return [replace(last, from_seq=group[0].from_seq, fields=fields)]
