"""Loop basics: how rounds follow each other, and how they end."""

from app.domain.inference.failures import FailureKind, failed
from app.domain.runs.runs import Done
from app.domain.runs.terminations import NaturalEnd, Stopped
from app.domain.threads.messages import Role
from app.llm.scripted.model import Fail, turn
from tests.conformance.scripted_runs import (
    ScriptedRun,
    a_call,
    end,
    events,
    lifecycle,
    run_async,
    run_turns,
    texts,
    types,
)

BROKEN = turn(Fail(failed(FailureKind.INVALID_REQUEST, "the provider is out of order")))


def test_single_step_natural_end() -> None:
    rows = run_turns(turn("Hello!"))
    assert isinstance(rows.record.state, Done)
    assert rows.record.state.termination == NaturalEnd()
    assert rows.record.steps == 1
    assert end(rows)["termination"] == {"type": "natural_end"}
    assert end(rows)["result"] == {"response": "Hello!"}


def test_natural_end_no_tools_completes_immediately() -> None:
    rows = run_turns(turn("Hello!"), turn("never said"))
    assert texts(rows) == [("user", "go"), ("assistant", "Hello!")]
    assert len(events(rows, "step_start")) == 1


def test_empty_tool_calls_natural_end() -> None:
    rows = run_turns(turn())
    assert end(rows)["termination"] == {"type": "natural_end"}
    assert end(rows)["result"]["response"] == ""
    assert rows.record.steps == 1


def test_tool_call_then_response() -> None:
    rows = run_turns(turn(a_call()), turn("Done."))
    assert rows.record.steps == 2
    assert end(rows)["result"]["response"] == "Done."
    assert [role for role, _ in texts(rows)] == ["user", "assistant", "tool", "assistant"]


def test_three_step_loop_tool_tool_response() -> None:
    rows = run_turns(turn(a_call(id="c1")), turn(a_call(id="c2")), turn("Done."))
    assert rows.record.steps == 3
    assert end(rows)["result"]["response"] == "Done."
    assert [one["result"]["outcome"] for one in events(rows, "tool_call_done")] == ["succeeded"] * 2


def test_mixed_tool_counts_per_step() -> None:
    two = turn(a_call(id="c1"), a_call("other", id="c2"))
    rows = run_turns(two, turn(a_call(id="c3")), turn("Done."))
    assert rows.record.steps == 3
    assert [(one["tool_call_id"], one["step"]) for one in events(rows, "tool_call_done")] == [
        ("c1", 1),
        ("c2", 1),
        ("c3", 2),
    ]


def test_max_rounds_exceeded() -> None:
    """The reference pays for one more round and discards it."""
    scripted = ScriptedRun(max_rounds=1)
    rows = run_async(scripted.run_turns(turn(a_call()), turn("never asked for")))
    assert isinstance(rows.record.state, Done)
    assert isinstance(rows.record.state.termination, Stopped)
    assert end(rows)["termination"]["code"] == "max_rounds"
    assert len(scripted.requests) == rows.record.steps == 1


def test_max_rounds_two_stops_after_two_tool_steps() -> None:
    """The reference stops in its third round, before that round's calls."""
    rows = run_turns(*[turn(a_call(id=f"c{number}")) for number in (1, 2, 3)], max_rounds=2)
    assert end(rows)["termination"]["type"] == "stopped"
    assert rows.record.steps == len(events(rows, "tool_call_done")) == 2
    assert texts(rows)[-1][0] == "tool"


def test_stop_policy_max_rounds_terminates() -> None:
    rows = run_turns(turn(a_call()), turn(a_call(id="c2")), max_rounds=1)
    assert end(rows)["outcome"] == "budget_exceeded"
    last = lifecycle(events(rows, "state_snapshot")[-1])
    assert (last["status"], last["status_reason"]) == ("done", "stopped:max_rounds")


def test_unknown_tool_returns_error_result_not_crash() -> None:
    rows = run_turns(turn(a_call("missing")), turn("Done."))
    assert texts(rows)[2] == ("tool", "tool 'missing' not found")
    assert events(rows, "tool_call_done")[0]["result"]["outcome"] == "failed"
    assert end(rows)["termination"] == {"type": "natural_end"}


def test_unknown_tool_in_multi_call_doesnt_crash() -> None:
    rows = run_turns(turn(a_call("missing"), a_call(id="c2")), turn("Done."))
    assert [one["result"]["outcome"] for one in events(rows, "tool_call_done")] == [
        "failed",
        "succeeded",
    ]
    assert rows.record.steps == 2


def test_failing_tool_produces_error_result_continues_loop() -> None:
    rows = run_turns(turn(a_call("failing"), a_call(id="c2")), turn("Done."))
    done = events(rows, "tool_call_done")
    assert [one["result"]["outcome"] for one in done] == ["failed", "succeeded"]
    assert done[0]["result"]["outcome"] == "failed"
    assert end(rows)["result"]["response"] == "Done."


def test_failed_tool_result_message_indicates_error() -> None:
    rows = run_turns(turn(a_call("failing")), turn("Done."))
    assert texts(rows)[2] == ("tool", "failing can't do c1")


def test_inference_error_produces_error_termination() -> None:
    """The reference emits no `run_finish` and writes no checkpoint."""
    rows = run_turns(BROKEN)
    assert types(rows)[1] == "run_start"
    assert end(rows)["termination"]["type"] == "error"
    assert end(rows)["termination"]["code"] == "invalid_request"
    assert rows.record.is_done


def test_llm_error_on_second_step_propagates() -> None:
    rows = run_turns(turn(a_call()), BROKEN)
    assert end(rows)["termination"]["type"] == "error"
    assert [role for role, _ in texts(rows)] == ["user", "assistant", "tool"]


def test_error_on_third_step_after_two_successful_steps() -> None:
    rows = run_turns(turn(a_call(id="c1")), turn(a_call(id="c2")), BROKEN)
    assert end(rows)["termination"]["type"] == "error"
    assert len(events(rows, "tool_call_done")) == 2
    assert [entry.message.role for entry in rows.log].count(Role.TOOL) == 2


def test_retry_startup_error_propagates() -> None:
    scripted = ScriptedRun()
    rows = run_async(scripted.run_turns(BROKEN))
    assert len(scripted.requests) == 1
    assert end(rows)["termination"]["detail"] == "the provider is out of order"
