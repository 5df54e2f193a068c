"""Events: how they are encoded, which are merged, and what a partial message holds."""

import json
from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from app.domain.checkpoints import PendingEvent
from app.domain.events.agent_events import COMMAND_EVENTS, DELTA_EVENTS, AgentEvent, event_fields
from app.domain.events.event_sizes import MAX_DELTA_BYTES, merge_deltas
from app.domain.events.partial_message import OpenCall, PartialMessage, partial_message_of
from app.domain.events.run_events import RunFinish, RunStart
from app.domain.events.step_events import (
    InferenceComplete,
    MessageDone,
    ReasoningDelta,
    StepEnd,
    StreamReset,
    TextDelta,
)
from app.domain.events.tool_call_events import (
    ToolCallCancel,
    ToolCallDelta,
    ToolCallDone,
    ToolCallReady,
    ToolCallStart,
    ToolCallStreamDelta,
)
from app.domain.ids import RunId, Tenant, ThreadId
from app.events.sse_encoding import EventBatch, Frame
from app.storage.events.event_log import entry

AT = datetime(2026, 11, 18, 9, 0, 0, 123_456, tzinfo=UTC)


def frame_of(event: AgentEvent, step: int | None = None) -> bytes:
    emitted = entry(PendingEvent(event, step))
    [frame] = EventBatch(Tenant("t"), ThreadId("th"), RunId("r"), 17, [emitted], AT).frames()
    return frame.whole


def short_of(event: AgentEvent, step: int) -> bytes:
    [frame] = EventBatch(
        Tenant("t"), ThreadId("th"), RunId("r"), 17, [entry(PendingEvent(event, step))], AT
    ).frames()
    return frame.short


def test_an_event_is_one_flat_object_behind_its_envelope() -> None:
    assert frame_of(TextDelta("Hel"), 1) == (
        b'id: 17\ndata: {"seq":17,"ts":"2026-11-18T09:00:00.123Z","thread_id":"th","run_id":"r",'
        b'"step":1,"event_type":"text_delta","delta":"Hel"}\n\n'
    )


def test_a_runs_own_stream_repeats_no_field_of_the_envelope() -> None:
    assert short_of(TextDelta("Hel"), 1) == (
        b'id: 17\ndata: {"step":1,"event_type":"text_delta","delta":"Hel"}\n\n'
    )
    assert short_of(StepEnd(), 1) == (
        b'id: 17\ndata: {"ts":"2026-11-18T09:00:00.123Z","step":1,"event_type":"step_end"}\n\n'
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


def test_characters_that_postgres_cannot_store_are_replaced() -> None:
    body = json.loads(frame_of(TextDelta("a\0b\ud800c")).split(b"data: ")[1])
    assert body["delta"] == "a\ufffdb\ufffdc"


IDENTITY = {"run_id": "r", "session_id": "r:1"}
SUSPENDED = RunFinish(
    IDENTITY,
    "waiting",
    {"type": "suspended"},
    waiting={"reason": "awaiting_tasks", "since_dispatch_id": "r:1"},
)
DONE = RunFinish(
    IDENTITY,
    "done",
    {"type": "natural_end"},
    "succeeded",
    # A result may have any fields.
    {"response": "\u2028", "identity": 1, "waiting": {"since_dispatch_id": 1}},
)


def frames_of(event: AgentEvent) -> tuple[Frame, Frame]:
    """The shared frame, and its variant with the trace."""
    batch = EventBatch(
        Tenant("t"), ThreadId("th"), RunId("r"), 17, [entry(PendingEvent(event, None))], AT
    )
    [frame] = batch.frames()
    return frame, frame.with_trace


def data_of(frame: Frame) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(frame.json)
    assert frame.short.endswith(b"\n\n")
    assert frame.short.count(b"\n") == 3
    assert body.items() >= json.loads(frame.short.split(b"data: ", 1)[1]).items()
    return body


@pytest.mark.parametrize("event", [RunStart(IDENTITY, "parent"), SUSPENDED, DONE])
def test_only_the_variant_for_traces_has_the_identity(event: AgentEvent) -> None:
    plain, traced = map(data_of, frames_of(event))
    stored = json.loads(entry(PendingEvent(event, None)).body)
    assert traced.items() >= stored.items()
    del stored["identity"]
    if waiting := stored.get("waiting"):
        del waiting["since_dispatch_id"]
    envelope = {"seq", "ts", "thread_id", "run_id", "event_type"}
    assert {name: plain[name] for name in plain.keys() - envelope} == stored
    assert {name: plain[name] for name in envelope} == {name: traced[name] for name in envelope}


def test_both_variants_say_whether_the_run_has_ended() -> None:
    assert [frame.ends_its_run for frame in frames_of(DONE)] == [True, True]
    assert [frame.ends_its_run for frame in frames_of(SUSPENDED)] == [False, False]


def test_each_variant_is_encoded_once_for_all_readers() -> None:
    plain, traced = frames_of(DONE)
    assert plain.with_trace is traced is traced.with_trace
    assert plain.whole is plain.whole
    assert traced.whole is traced.whole


def test_an_event_without_a_trace_has_one_variant() -> None:
    frame, traced = frames_of(TextDelta("identity"))
    assert frame is traced


def test_absent_fields_are_left_out_but_null_arguments_are_shown() -> None:
    assert event_fields(InferenceComplete("m", 5)) == {"model": "m", "duration_ms": 5}
    assert event_fields(RunStart({}, None)) == {"identity": {}}
    assert event_fields(ToolCallDone("c", "m", {})) == {
        "tool_call_id": "c",
        "message_id": "m",
        "result": {},
    }
    assert event_fields(ToolCallReady("c", "add", None))["arguments"] is None


def test_every_event_has_a_type_of_its_own() -> None:
    types = [event.event_type for event in get_args(AgentEvent)]
    assert len(set(types)) == len(types) == 38
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
def test_only_adjacent_deltas_of_one_message_or_call_are_merged(
    first: AgentEvent, second: AgentEvent, joined: AgentEvent | None
) -> None:
    assert merge_deltas(first, second) == joined


def test_deltas_are_merged_up_to_the_largest_size() -> None:
    half = "x" * (MAX_DELTA_BYTES // 2)
    assert merge_deltas(TextDelta(half), TextDelta(half)) == TextDelta(half + half)
    assert merge_deltas(TextDelta(half + half), TextDelta("x")) is None


def parts(*events: AgentEvent) -> PartialMessage:
    return partial_message_of((event.event_type, event_fields(event)) for event in events)


def test_an_open_message_is_the_sum_of_its_deltas() -> None:
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
        "hm",
        calls=(
            OpenCall("c1", "add", '{"a":1}'),
            OpenCall("c2", "mul", ""),
        ),
    )


def test_a_reset_voids_the_open_message() -> None:
    emitted = (
        TextDelta("Hel"),
        ToolCallStart("c1", "add"),
        StreamReset("takeover"),
        TextDelta("Ho"),
    )
    assert parts(*emitted) == PartialMessage("Ho")


def test_a_complete_message_is_known_by_its_id_until_a_reset_voids_it() -> None:
    done = MessageDone({"id": "m", "role": "assistant", "content": []})
    assert parts(TextDelta("Hello"), done) == PartialMessage("Hello", message_id="m")
    assert parts(TextDelta("Hello"), done, StreamReset("takeover")) == PartialMessage()


def test_a_call_that_is_over_is_not_open() -> None:
    assert parts(
        ToolCallStart("c1", "add"),
        ToolCallStart("c2", "add"),
        ToolCallCancel("c1", "add", "malformed arguments"),
        ToolCallDone("c2", "m", {}),
    ) == PartialMessage("")
