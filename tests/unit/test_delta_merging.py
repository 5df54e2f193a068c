"""Logged deltas are merged with adjacent ones only, and no text is lost."""

from hypothesis import given
from hypothesis import strategies as st

from app.domain.events.delta_merging import LoggedDelta, merge_logged_deltas
from app.domain.events.event_sizes import MAX_DELTA_BYTES
from app.domain.json_values import JsonObject
from app.domain.structs import replace


def text(seq: int, delta: str, *, step: int = 1) -> LoggedDelta:
    return of("text_delta", seq, {"delta": delta}, step=step)


def of(event_type: str, seq: int, fields: JsonObject, *, step: int = 1) -> LoggedDelta:
    return LoggedDelta(from_seq=seq, seq=seq, step=step, event_type=event_type, fields=fields)


def test_adjacent_deltas_merge_under_the_last_seq() -> None:
    [one] = merge_logged_deltas([text(3, "Hel"), text(4, "lo"), text(5, "!")])
    assert (one.from_seq, one.seq, one.fields) == (3, 5, {"delta": "Hello!"})


def test_a_merged_delta_merges_with_the_next_one() -> None:
    before = replace(text(5, "Hello"), from_seq=3)
    [one] = merge_logged_deltas([before, text(6, "!")])
    assert (one.from_seq, one.seq, one.text) == (3, 6, "Hello!")


def test_an_event_between_deltas_keeps_its_position() -> None:
    assert merge_logged_deltas([text(3, "a"), text(5, "b")]) == []


def test_deltas_of_different_messages_are_not_merged() -> None:
    call, stream = (
        {"tool_call_id": "one", "args_delta": "{"},
        {"tool_call_id": "one", "name": "f", "delta": "x"},
    )
    assert (
        merge_logged_deltas(
            [
                text(1, "a", step=1),
                text(2, "b", step=2),
                of("reasoning_delta", 3, {"delta": "c"}, step=2),
                of("tool_call_delta", 4, call, step=2),
                of("tool_call_delta", 5, {**call, "id": "two"}, step=2),
                of("tool_call_stream_delta", 6, stream, step=2),
                of("tool_call_stream_delta", 7, {**stream, "id": "two"}, step=2),
            ]
        )
        == []
    )


def test_deltas_of_the_arguments_and_output_of_one_call_are_merged() -> None:
    call = {"tool_call_id": "one", "args_delta": '{"a'}
    [arguments] = merge_logged_deltas(
        [of("tool_call_delta", 1, call), of("tool_call_delta", 2, {**call, "args_delta": '":1}'})]
    )
    assert arguments.fields == {"tool_call_id": "one", "args_delta": '{"a":1}'}


def test_no_merged_delta_exceeds_the_largest_size() -> None:
    half = "x" * (MAX_DELTA_BYTES // 2)
    made = merge_logged_deltas([text(1, half), text(2, half), text(3, "y"), text(4, "z")])
    assert [(one.from_seq, one.seq, len(one.text)) for one in made] == [
        (1, 2, MAX_DELTA_BYTES),
        (3, 4, 2),
    ]
    made = merge_logged_deltas([text(number, half) for number in range(1, 5)])
    assert [(one.from_seq, one.seq) for one in made] == [(1, 2), (3, 4)]


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 2), st.text(max_size=3)), max_size=30))
def test_merging_keeps_all_text_in_order_and_never_crosses_other_events(
    emitted: list[tuple[int, int, str]],
) -> None:
    seq, deltas = 0, []
    for distance, step, piece in emitted:
        seq += distance
        deltas.append(text(seq, piece, step=step))
    made = merge_logged_deltas(deltas)
    gone = {seq for one in made for seq in range(one.from_seq, one.seq + 1)}
    left = sorted([*made, *(one for one in deltas if one.seq not in gone)], key=lambda one: one.seq)
    assert "".join(one.text for one in left) == "".join(one.text for one in deltas)
    assert all(one.seq < other.from_seq for one, other in zip(left, left[1:], strict=False))
    assert merge_logged_deltas(left) == []
