"""Events: how they are encoded, which of them are joined, and what is open of a message."""

import json
from datetime import UTC, datetime
from typing import get_args

import pytest

from app.domain.checkpoints import PendingEvent
from app.domain.events.command_events import COMMAND_EVENTS
from app.domain.events.event_sizes import MAX_DELTA_BYTES, merge_deltas
from app.domain.events.partial_message import PartialMessage, partial_message_of
from app.domain.events.run_events import (
    DELTA_EVENTS,
    AgentEvent,
    InferenceComplete,
    ReasoningDelta,
    RunStart,
    StepEnd,
    StreamReset,
    TextDelta,
    ToolCallCancel,
    ToolCallDelta,
    ToolCallDone,
    ToolCallReady,
    ToolCallResumed,
    ToolCallStart,
    ToolCallStreamDelta,
    event_fields,
)
from app.domain.ids import RunId, Tenant, ThreadId
from app.events.sse_encoding import EventBatch
from app.storage.events.event_log import entry

AT = datetime(2026, 11, 18, 9, 0, 0, 123_456, tzinfo=UTC)


def frame_of(event: AgentEvent, step: int | None = None) -> bytes:
    said = entry(PendingEvent(event, step))
    [frame] = EventBatch(Tenant("t"), ThreadId("th"), RunId("r"), 17, [said], AT).frames()
    return frame.data


def test_an_event_is_one_flat_object_behind_its_envelope() -> None:
    assert frame_of(TextDelta("Hel"), 1) == (
        b'id: 17\ndata: {"seq":17,"ts":"2026-11-18T09:00:00.123Z","thread_id":"th","run_id":"r",'
        b'"step":1,"event_type":"text_delta","delta":"Hel"}\n\n'
    )


def test_an_event_without_fields_or_step_is_its_envelope() -> None:
    body = json.loads(frame_of(StepEnd()).split(b"data: ")[1])
    assert list(body) == ["seq", "ts", "thread_id", "run_id", "event_type"]


@pytest.mark.parametrize(
    "text", ["line\nbreak", "carriage\r\nreturn", 'quote"', "ümläut", "\u2028", "data: x\n\n"]
)
def test_no_text_breaks_a_frame(text: str) -> None:
    data = frame_of(TextDelta(text))
    assert data.count(b"\n") == 3
    assert b"\r" not in data
    assert json.loads(data.split(b"data: ", 1)[1])["delta"] == text


def test_what_no_store_can_keep_is_replaced() -> None:
    body = json.loads(frame_of(TextDelta("a\0b\ud800c")).split(b"data: ")[1])
    assert body["delta"] == "a\ufffdb\ufffdc"


def test_absent_fields_are_left_out_but_a_null_result_is_shown() -> None:
    assert event_fields(InferenceComplete("m", 5)) == {"model": "m", "duration_ms": 5}
    assert event_fields(RunStart({}, None)) == {"identity": {}}
    assert event_fields(ToolCallResumed("c", None)) == {"target_id": "c", "result": None}
    assert event_fields(ToolCallReady("c", "add", None))["arguments"] is None


def test_every_event_has_a_type_of_its_own() -> None:
    types = [event.event_type for event in get_args(AgentEvent)]
    assert len(set(types)) == len(types) == 39
    assert set(types) >= COMMAND_EVENTS | DELTA_EVENTS


@pytest.mark.parametrize(
    "first, second, joined",
    [
        (TextDelta("a"), TextDelta("b"), TextDelta("ab")),
        (ReasoningDelta("a"), ReasoningDelta("b"), ReasoningDelta("ab")),
        (ToolCallDelta("c", "a"), ToolCallDelta("c", "b"), ToolCallDelta("c", "ab")),
        (
            ToolCallStreamDelta("c", "n", "a"),
            ToolCallStreamDelta("c", "n", "b"),
            ToolCallStreamDelta("c", "n", "ab"),
        ),
        (TextDelta("a"), ReasoningDelta("b"), None),
        (ToolCallDelta("c", "a"), ToolCallDelta("d", "b"), None),
        (ToolCallStreamDelta("c", "n", "a"), ToolCallStreamDelta("d", "n", "b"), None),
        (TextDelta("a"), StepEnd(), None),
        (StepEnd(), StepEnd(), None),
    ],
)
def test_only_neighbouring_pieces_of_one_thing_are_joined(
    first: AgentEvent, second: AgentEvent, joined: AgentEvent | None
) -> None:
    assert merge_deltas(first, second) == joined


def test_pieces_are_joined_only_as_long_as_a_client_can_hold_them() -> None:
    half = "x" * (MAX_DELTA_BYTES // 2)
    assert merge_deltas(TextDelta(half), TextDelta(half)) == TextDelta(half + half)
    assert merge_deltas(TextDelta(half + half), TextDelta("x")) is None


def parts(*events: AgentEvent) -> PartialMessage:
    return partial_message_of((event.event_type, event_fields(event)) for event in events)


def test_an_open_message_is_the_sum_of_its_pieces() -> None:
    assert parts(
        ReasoningDelta("hm"),
        TextDelta("Hel"),
        TextDelta("lo"),
        ToolCallStart("c1", "add"),
        ToolCallDelta("c1", '{"a":'),
        ToolCallStart("c2", "mul"),
        ToolCallDelta("c1", "1}"),
    ) == PartialMessage(
        "Hello",
        (
            {"id": "c1", "name": "add", "arguments": '{"a":1}'},
            {"id": "c2", "name": "mul", "arguments": ""},
        ),
    )


def test_a_reset_voids_what_was_open() -> None:
    said = (TextDelta("Hel"), ToolCallStart("c1", "add"), StreamReset("takeover"), TextDelta("Ho"))
    assert parts(*said) == PartialMessage("Ho")


def test_a_call_that_is_over_is_not_open() -> None:
    assert parts(
        ToolCallStart("c1", "add"),
        ToolCallStart("c2", "add"),
        ToolCallCancel("c1", "add", "malformed arguments"),
        ToolCallDone("c2", "m", {}, "succeeded"),
    ) == PartialMessage("")
