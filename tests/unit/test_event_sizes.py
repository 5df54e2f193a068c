"""Sizes of events in bytes; adjacent deltas are merged up to the largest size."""

import pytest

from app.domain.events.agent_events import AgentEvent
from app.domain.events.event_sizes import MAX_DELTA_BYTES, merge_deltas, size_of
from app.domain.events.step_events import ReasoningDelta, StepEnd, TextDelta
from app.domain.events.tool_call_events import (
    ActivityDelta,
    ActivitySnapshot,
    ToolCallDelta,
    ToolCallStreamDelta,
)
from app.domain.ids import CallId

C1, C2 = CallId("c1"), CallId("c2")


@pytest.mark.parametrize(
    "event, size",
    [
        (TextDelta("abc"), 3),
        (TextDelta("äbc"), 4),
        (TextDelta("\ud800"), 3),
        (ReasoningDelta("ab"), 2),
        (ToolCallDelta(C1, "a"), 1),
        (ToolCallStreamDelta(C1, "pay", "abcd"), 4),
        (ActivitySnapshot(C1, "x", {"a": 1}, True), len('{"a":1}')),
        (ActivityDelta(C1, "x", [{"a": 1}]), len('[{"a":1}]')),
        (StepEnd(), 0),
    ],
)
def test_the_size_of_an_event_is_its_encoded_bytes(event: AgentEvent, size: int) -> None:
    assert size_of(event) == size


@pytest.mark.parametrize(
    "first, second, one",
    [
        (TextDelta("a"), TextDelta("b"), TextDelta("ab")),
        (ReasoningDelta("a"), ReasoningDelta("b"), ReasoningDelta("ab")),
        (ToolCallDelta(C1, "a"), ToolCallDelta(C1, "b"), ToolCallDelta(C1, "ab")),
        (ToolCallDelta(C1, "a"), ToolCallDelta(C2, "b"), None),
        (
            ToolCallStreamDelta(C1, "pay", "a"),
            ToolCallStreamDelta(C1, "pay", "b"),
            ToolCallStreamDelta(C1, "pay", "ab"),
        ),
        (ToolCallStreamDelta(C1, "pay", "a"), ToolCallStreamDelta(C2, "pay", "b"), None),
        (TextDelta("a"), ReasoningDelta("b"), None),
        (StepEnd(), StepEnd(), None),
    ],
)
def test_deltas_of_one_message_are_merged(
    first: AgentEvent, second: AgentEvent, one: AgentEvent | None
) -> None:
    assert merge_deltas(first, second) == one


@pytest.mark.parametrize("make", [TextDelta, ReasoningDelta, lambda text: ToolCallDelta(C1, text)])
def test_no_delta_becomes_larger_than_the_largest(make: type[TextDelta]) -> None:
    almost = "x" * (MAX_DELTA_BYTES - 1)
    assert merge_deltas(make(almost), make("y")) == make(almost + "y")
    assert merge_deltas(make(almost), make("yz")) is None
    assert merge_deltas(make("yz"), make(almost)) is None
