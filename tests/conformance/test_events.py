"""Events: their sequence, and the snapshots of the state among them."""

from app.llm.scripted.model import turn
from tests.conformance.scripted_runs import a_call, events, lifecycle, run_turns, types

BEGUN = ["run_created", "run_start"]
STEP_WITH_A_CALL = [
    "step_start",
    "tool_call_start",
    "tool_call_ready",
    "inference_complete",
    "message_done",
    "tool_call_done",
    "state_snapshot",
    "step_end",
]
LAST_STEP = ["step_start", "inference_complete", "message_done"]
LAST_STEP += ["state_snapshot", "step_end"]
ENDED = ["state_snapshot", "run_finish"]


def test_events_have_correct_sequence_for_single_step() -> None:
    assert types(run_turns(turn("Hello!"))) == [*BEGUN, *LAST_STEP, *ENDED]


def test_events_have_correct_sequence_with_tool_call() -> None:
    rows = run_turns(turn(a_call(arguments={"a": 1})), turn("Done."))
    assert types(rows) == [
        *BEGUN,
        *STEP_WITH_A_CALL[:-3],
        *STEP_WITH_A_CALL[-3:],
        *LAST_STEP,
        *ENDED,
    ]


def test_three_step_events_have_correct_overall_sequence() -> None:
    rows = run_turns(turn(a_call(id="c1")), turn(a_call(id="c2")), turn("Done."))
    assert types(rows) == [*BEGUN, *STEP_WITH_A_CALL, *STEP_WITH_A_CALL, *LAST_STEP, *ENDED]
    assert [one["step"] for one in events(rows, "step_start")] == [1, 2, 3]
    assert [one["step"] for one in events(rows, "step_end")] == [1, 2, 3]


def test_run_start_event_emitted_first() -> None:
    """Only `run_created` comes before; the start command emits it."""
    rows = run_turns(turn("Hello!"))
    assert types(rows)[:2] == BEGUN
    assert types(rows).count("run_start") == 1
    assert events(rows, "run_start")[0]["identity"]["run_id"] == rows.record.id


def test_run_finish_event_emitted_last() -> None:
    rows = run_turns(turn(a_call()), turn("Done."))
    assert types(rows)[-1] == "run_finish"
    assert types(rows).count("run_finish") == 1


def test_tool_call_start_emitted_before_done() -> None:
    emitted = types(run_turns(turn(a_call()), turn("Done.")))
    assert emitted.index("tool_call_start") < emitted.index("tool_call_ready")
    assert emitted.index("tool_call_ready") < emitted.index("inference_complete")
    assert emitted.index("inference_complete") < emitted.index("tool_call_done")


def test_multiple_tools_each_get_start_done_pair() -> None:
    calls = [a_call(id="c1"), a_call("other", id="c2"), a_call("failing", id="c3")]
    rows = run_turns(turn(*calls), turn("Done."))
    for kind in ("tool_call_start", "tool_call_ready", "tool_call_done"):
        assert [one["tool_call_id"] for one in events(rows, kind)] == ["c1", "c2", "c3"]


def test_state_snapshot_emitted_after_phase() -> None:
    emitted = types(run_turns(turn(a_call()), turn("Done.")))
    for place, kind in enumerate(emitted):
        if kind in ("step_end", "run_finish"):
            assert emitted[place - 1] == "state_snapshot"


def test_state_snapshot_revision_increases_across_steps() -> None:
    rows = run_turns(turn(a_call(id="c1")), turn(a_call(id="c2")), turn("Done."))
    steps = [one for one in events(rows, "state_snapshot") if "step" in one]
    revisions = [one["snapshot"]["revision"] for one in steps]
    assert revisions == sorted(set(revisions))
    assert len(revisions) == 3


def test_state_snapshot_contains_extensions_with_lifecycle() -> None:
    rows = run_turns(turn("Hello!"))
    of_step, of_run = map(lifecycle, events(rows, "state_snapshot"))
    assert (of_step["run_id"], of_step["status"]) == (rows.record.id, "running")
    assert (of_step["step_count"], of_run["step_count"]) == (1, 1)
    assert (of_run["status"], of_run["status_reason"]) == ("done", "natural")


def test_state_snapshot_count_matches_steps_plus_finish() -> None:
    rows = run_turns(turn(a_call(id="c1")), turn(a_call(id="c2")), turn("Done."))
    assert len(events(rows, "state_snapshot")) == rows.record.steps + 1


def test_state_snapshot_at_suspension_includes_waiting_status() -> None:
    rows = run_turns(turn(a_call("gated")))
    last = lifecycle(events(rows, "state_snapshot")[-1])
    assert (last["status"], last["status_reason"]) == ("waiting", "suspended")
