"""The checker of event order accepts correct histories and finds each fault in a broken one."""

from typing import Any

import pytest

from app.domain.runs.runs import LIFECYCLE
from tests.support.event_order import Event, check_received, check_run, check_thread

RESULT = {"response": ""}
START = ["run_created", "run_start"]
INFERRED_1 = [
    "step_start 1",
    "text_delta 1",
    "tool_call_start 1 c1",
    "tool_call_delta 1 c1",
    "tool_call_ready 1 c1",
    "inference_complete 1",
]
STEP_1 = [*INFERRED_1, "message_done 1 c1"]
DONE_1 = ["tool_call_done 1 c1", "state_snapshot 1", "step_end 1"]
STEP_2 = ["step_start 2", "text_delta 2", "inference_complete 2", "message_done 2"]
STEP_2 += ["state_snapshot 2", "step_end 2"]
FINISH = ["state_snapshot", "run_finish"]
ASKED_1 = ["tool_call_done 1 c1 waiting", "ticket_opened c1", "state_snapshot 1", "step_end 1"]
PAUSED = ["state_snapshot", "run_finish suspended paused"]
SUSPENDED = ["state_snapshot", "run_finish suspended c1"]
TWO_CALLS = [*INFERRED_1[:-1], "tool_call_start 1 c2", "tool_call_ready 1 c2", INFERRED_1[-1]]
TWO_CALLS += ["message_done 1 c1 c2"]
WHOLE = [*START, *STEP_1, *DONE_1, *STEP_2, *FINISH]
WAITS = [*START, *STEP_1, *ASKED_1, *SUSPENDED]
LEFT_OPEN = [*START, *STEP_1, "step_end 1", "run_finish suspended no_agent"]
IDLE_END = ["state_snapshot", "run_finish cancelled"]
RESUMED = [*WAITS, "ticket_decided c1", "run_start", "tool_call_resumed c1", *STEP_2, *FINISH]


def history(*words: str) -> list[Event]:
    """Events from words: type, step, call, outcome; a ticket is called like its call, or `ticket@call`."""
    return [_event(seq, *word.split()) for seq, word in enumerate(words, 1)]


def _event(seq: int, kind: str, *details: str) -> Event:
    event: dict[str, Any] = {"seq": seq, "thread_id": "t", "run_id": "r", "event_type": kind}
    words = list(details)
    if words and words[0].isdigit():
        event["step"] = int(words.pop(0))
    name = words.pop(0) if words else None
    match kind:
        case "run_finish" if name == "suspended":
            waiting = {
                "reason": "tool_permission",
                "needs_decision": bool(words),
                "tickets": [{"id": word} for word in words],
            }
            if words == ["no_agent"]:
                waiting |= {"reason": "agent_version_unavailable", "tickets": []}
                waiting["needs_decision"] = False
            if words == ["paused"]:
                waiting |= {"reason": "manual_pause", "tickets": []}
                waiting["needs_decision"] = True
            return {**event, "termination": {"type": "suspended"}, "waiting": waiting}
        case "run_finish":
            return {**event, "termination": {"type": name or "natural_end"}, "result": RESULT}
        case "state_snapshot":
            lifecycle = {"run_id": "r", "status": name or "done"}
            return {**event, "snapshot": {"extensions": {LIFECYCLE: lifecycle}}}
        case "message_done":
            called = [
                {"tool_call_id": word} for word in (name, *words) if word not in (None, "cut")
            ]
            cut = {"cut_short": "cancelled"} if name == "cut" else {}
            return {**event, "message": {"role": "assistant", "tool_calls": called, **cut}}
        case "tool_call_done":
            status = words[0] if words else "done"
            return {**event, "tool_call_id": name, "result": {"status": status}}
        case "tool_call_resumed":
            return {**event, "tool_call_id": name}
        case "ticket_opened":
            ticket, _, call = (name or "").partition("@")
            shown = {"id": ticket, "kind": "approval", "tool_call_id": call or ticket}
            return {**event, "ticket": shown}
        case "ticket_decided":
            return {**event, "ticket_id": name}
        case _:
            return {**event, "id": name, "tool_call_id": name}


@pytest.mark.parametrize(
    "words",
    [
        WHOLE,
        WAITS,
        RESUMED,
        [*START, "step_start 1", "text_delta 1", "stream_reset 1", *STEP_1[1:], *DONE_1, *FINISH],
        ["run_created", "cancel_requested", *IDLE_END],
        [*WAITS, "cancel_requested", "message_done cut", "tool_call_done c1", *IDLE_END],
        [*START, "step_start 1", "text_delta 1", "cancel_requested", "message_done 1 cut"]
        + ["state_snapshot 1", "step_end 1", "state_snapshot", "run_finish cancelled"],
        [*WAITS, "cancel_requested", "tool_call_done c1", *IDLE_END],
        [*LEFT_OPEN, "cancel_requested", "tool_call_done c1", *IDLE_END],
        [*START, "pause_requested", *STEP_1, *DONE_1, *PAUSED, "pause_ended", "run_start"]
        + [*STEP_2, *FINISH],
        [*START, "pause_requested", "step_start 1", "stream_reset 1", "step_end 1", *PAUSED]
        + ["pause_ended", "run_start", *STEP_1, *DONE_1, *STEP_2, *FINISH],
        [*START, "pause_requested", "step_start 1", "stream_reset 1", "step_end 1", *PAUSED]
        + ["cancel_requested", *IDLE_END],
        [*START, "step_start 1", "tool_call_start 1 c1", "cancel_requested", "state_snapshot 1"]
        + ["step_end 1", "state_snapshot", "run_finish cancelled"],
        [*START, *STEP_1, "step_end 1", "run_finish suspended no_agent", "run_start"]
        + ["step_start 1", *DONE_1, *STEP_2, *FINISH],
        [*START, *TWO_CALLS, "tool_call_done 1 c2", *ASKED_1, *SUSPENDED],
        [*WAITS, "ticket_decided c1", "run_start", "tool_call_done c1 waiting"]
        + ["ticket_opened c1b@c1", "state_snapshot", "run_finish suspended c1b"],
    ],
)
def test_sound_histories_have_no_violation(words: list[str]) -> None:
    events = history(*words)
    check_run(events)
    check_thread(events)


@pytest.mark.parametrize(
    "fault, words",
    [
        ("run_created is first", WHOLE[1:]),
        ("run_created is first", [*START, "run_created"]),
        ("outside an activation", ["run_created", "step_start 1"]),
        ("run_start within", [*START, "run_start"]),
        ("an event after the end", [*WHOLE, "state_snapshot"]),
        ("a step within a step", [*START, "step_start 1", "step_start 2"]),
        ("step 2 after 0", [*START, "step_start 2"]),
        ("step 1 after 1", [*START, *STEP_1, *DONE_1, "step_start 1"]),
        ("outside a step", [*START, "text_delta"]),
        ("within a step", [*START, "step_start 1", "run_finish 1"]),
        ("an event of another step", [*START, "step_start 1", "text_delta 2"]),
        ("an event of another step", [*START, "step_start 1", "run_finish"]),
        ("no state before", [*START, "run_finish"]),
        ("ready, but not started", [*START, "step_start 1", "tool_call_ready 1 c1"]),
        ("done before the inference", [*START, *INFERRED_1[:-1], "tool_call_done 1 c1"]),
        ("ready after", [*START, *INFERRED_1[:-2], "inference_complete 1", "tool_call_ready 1 c1"]),
        ("a second inference", [*START, *INFERRED_1, "inference_complete 1"]),
        ("text after", [*START, *INFERRED_1, "text_delta 1"]),
        ("text after its message", [*START, "step_start 1", "message_done 1 cut", "text_delta 1"]),
        (
            "a message before its inference",
            [*START, "step_start 1", "message_done 1", "inference_complete 1"],
        ),
        ("calls before their inference", [*START, *INFERRED_1[:-1], "message_done 1 c1"]),
        ("a second message", [*START, *STEP_1, "message_done 1 c1"]),
        ("other calls", [*START, *INFERRED_1, "message_done 1"]),
        ("before the message of its call", [*START, *INFERRED_1, "tool_call_done 1 c1"]),
        ("no message for its inference", [*START, *INFERRED_1, "state_snapshot 1", "step_end 1"]),
        ("a complete message outside", [*START, "message_done"]),
        ("a complete answer of an idle", ["run_created", "cancel_requested", "message_done"]),
        (
            "after the first event of the end",
            ["run_created", "cancel_requested", "state_snapshot", "message_done cut"],
        ),
        ("twice", [*START, *STEP_1, "tool_call_done 1 c1", "tool_call_done 1 c1"]),
        ("a call started twice", [*START, *STEP_1[:3], "tool_call_start 1 c1"]),
        ("whose ticket", [*START, *STEP_1, "ticket_opened c1"]),
        ("decided, but not open", [*START, "ticket_decided c1"]),
        (
            "the finish names other tickets",
            [*START, *STEP_1, *ASKED_1, "state_snapshot", "run_finish suspended"],
        ),
        ("without activation", ["run_created", *IDLE_END]),
        ("only a cancel", ["run_created", "cancel_requested", "state_snapshot", "run_finish"]),
        ("no state before", ["run_created", "cancel_requested", "run_finish cancelled"]),
        ("its state isn't done", [*WHOLE[:-2], "state_snapshot running", "run_finish"]),
        (
            "its state isn't done",
            [*WAITS, "cancel_requested", "tool_call_done c1"]
            + ["state_snapshot waiting", "run_finish cancelled"],
        ),
        ("calls without a result", [*WAITS, "cancel_requested", *IDLE_END]),
        ("calls without a result", [*LEFT_OPEN, "cancel_requested", *IDLE_END]),
        (
            "after the state",
            [*WAITS, "cancel_requested", "state_snapshot", "tool_call_done c1"],
        ),
        (
            "a result of an unknown call",
            [*WAITS, "cancel_requested", "tool_call_done c2", *IDLE_END],
        ),
        ("resumed, but not suspended", [*START, *STEP_1, *DONE_1, "tool_call_resumed c1"]),
        ("a call without result", [*START, *STEP_1, *DONE_1[1:], *STEP_2]),
        ("calls without a result", [*START, *STEP_1, *DONE_1[1:], *FINISH]),
        ("ended without the state", [*START, *STEP_1, *DONE_1[::2], *STEP_2]),
        ("came first", [*START, *TWO_CALLS, "tool_call_done 1 c2", "tool_call_done 1 c1"]),
        ("a second pause", [*START, "pause_requested", "pause_requested"]),
        ("that wasn't there", [*START, "pause_ended"]),
        ("without a request", [*START, *STEP_1, *DONE_1, *PAUSED]),
        (
            "a paused run was executed",
            [*START, "pause_requested", *STEP_1, *DONE_1, *PAUSED, "run_start"],
        ),
        (
            "beyond a step border",
            [*START, "pause_requested", *STEP_1, *DONE_1, *STEP_2],
        ),
        ("a second cancel request", [*START, "cancel_requested", "cancel_requested"]),
    ],
)
def test_a_fault_is_found_and_named(fault: str, words: list[str]) -> None:
    with pytest.raises(AssertionError, match=fault):
        check_run(history(*words))


def test_numbers_grow_within_a_run_and_have_no_gap_within_a_thread() -> None:
    events = history(*WHOLE)
    check_run([{**event, "seq": 2 * event["seq"]} for event in events])
    with pytest.raises(AssertionError, match="gap"):
        check_thread(events[:3] + events[4:])
    with pytest.raises(AssertionError, match="seq 1 after 1"):
        check_run([events[0], *events])


def test_a_stream_joined_in_the_middle_is_checked_by_the_rules_that_apply() -> None:
    events = history(*RESUMED)
    check_received(events[len(WAITS) :])
    check_received([_of_other_run(event) if event["seq"] < 4 else event for event in events])
    with pytest.raises(AssertionError, match="after"):
        check_received([events[5], events[4]])
    with pytest.raises(AssertionError, match="after the end"):
        check_received([*events[5:], {**events[-2], "seq": len(events) + 1}])
    with pytest.raises(AssertionError, match="outside an activation"):
        check_received([events[0], *events[2:]])


def _of_other_run(event: Event) -> Event:
    if event["event_type"] != "state_snapshot":
        return {**event, "run_id": "s"}
    done = {"extensions": {LIFECYCLE: {"run_id": "s", "status": "done"}}}
    return {**event, "run_id": "s", "snapshot": done}


def test_runs_of_one_thread_are_checked_apart() -> None:
    first, second = history(*WHOLE), history(*WHOLE)
    second = [_of_other_run(event) for event in second]
    mixed = [event for pair in zip(first, second, strict=True) for event in pair]
    check_thread([{**event, "seq": seq} for seq, event in enumerate(mixed, 1)])
