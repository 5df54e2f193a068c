"""Suspension and resumption: the effect of a decision on its call."""

from typing import Any

from app.domain.threads.messages import Role
from app.domain.tickets.decisions import Action
from app.domain.tools.tool_calls import INTERRUPTED, CallStatus, ResumeMode
from app.llm.scripted.model import Call, turn
from tests.conformance.scripted_runs import ScriptedRun, a_call, end, events, run_async, texts
from tests.support.thread_rows import Rows


def resumed(*calls: Call, action: Action, **more: Any) -> tuple[ScriptedRun, Rows]:
    """A run whose only ticket, for its first call, was decided with this action."""

    async def scenario() -> tuple[ScriptedRun, Rows]:
        scripted = ScriptedRun()
        await scripted.run_turns(turn(*calls), turn("Done."))
        return scripted, await scripted.answer(action, **more)

    return run_async(scenario())


def result_of(rows: Rows) -> Any:
    [event] = events(rows, "tool_call_resumed")
    assert event["tool_call_id"] == "c1"
    result = event["result"]
    return result.get("data", result["text"])


def test_sequential_tools_stop_after_first_suspension() -> None:
    async def scenario() -> Rows:
        return await ScriptedRun().run_turns(
            turn(a_call(id="c0"), a_call("asking", id="c1"), a_call(id="c2"), a_call(id="c3"))
        )

    rows = run_async(scenario())
    outcomes = {
        one["tool_call_id"]: one["result"].get("outcome") for one in events(rows, "tool_call_done")
    }
    assert outcomes == {
        "c0": "succeeded",
        "c1": None,
        "c2": "failed",
        "c3": "failed",
    }
    assert texts(rows)[-2:] == [("tool", INTERRUPTED)] * 2
    assert [one.call_id for one in rows.open_tickets] == ["c1"]


def test_decision_channel_resume_resolves_suspended_call() -> None:
    scripted, rows = resumed(a_call("gated"), action=Action.APPROVE)
    assert rows.record.is_done
    assert rows.calls == ()
    assert end(rows)["result"]["response"] == "Done."
    assert len(scripted.requests) == 2


def test_replay_tool_call_executes_original_tool() -> None:
    _, rows = resumed(a_call("gated", arguments={"a": 1}), action=Action.APPROVE)
    assert result_of(rows) == {"did": "c1", "with": {"a": 1}, "times": 1}
    [ticket] = rows.tickets
    assert ticket.resume_mode is ResumeMode.REPLAY_TOOL_CALL


def test_use_decision_records_decision_payload_without_rewriting_arguments() -> None:
    scripted, rows = resumed(
        a_call("deciding", arguments={"a": 1}), action=Action.RESPOND, result={"it": "is so"}
    )
    assert result_of(rows) == {"it": "is so"}
    [ticket] = rows.tickets
    assert ticket.resume_mode is ResumeMode.USE_DECISION_AS_TOOL_RESULT
    assert ticket.decision is not None
    assert ticket.decision.answer.payload == {"it": "is so"}
    assert scripted.requests[1].messages[1].tool_calls[0].arguments == {"a": 1}


def test_pass_decision_records_decision_payload_without_rewriting_arguments() -> None:
    """The reference replaces the tool's arguments by the decision; Holdfast passes both."""
    scripted, rows = resumed(
        a_call("passing", arguments={"a": 1}), action=Action.APPROVE, result={"it": "is so"}
    )
    assert result_of(rows) == {"did": "c1", "with": {"a": 1}, "times": 2}
    assert scripted.requests[1].messages[1].tool_calls[0].arguments == {"a": 1}


def test_resume_with_empty_decision_result_succeeds() -> None:
    for tool in ("gated", "asking", "passing"):
        _, rows = resumed(a_call(tool), action=Action.APPROVE)
        assert end(rows)["termination"] == {"type": "natural_end"}
    _, rows = resumed(a_call("deciding"), action=Action.RESPOND)
    assert result_of(rows) == "null"
    assert end(rows)["termination"] == {"type": "natural_end"}


def test_cancel_decision_marks_tool_cancelled() -> None:
    """The call is finished, and the run continues to its natural end."""
    scripted, rows = resumed(a_call("gated"), action=Action.CANCEL, reason="better not")
    assert result_of(rows) == "better not"
    assert end(rows)["termination"] == {"type": "natural_end"}
    [shown] = [one.text for one in scripted.requests[1].messages if one.role is Role.TOOL]
    assert shown == "better not"


def test_one_of_two_decisions_keeps_the_run_waiting() -> None:
    """The reference loses finished calls when it crashes before the second decision."""

    async def scenario() -> tuple[ScriptedRun, Rows, Rows]:
        scripted = ScriptedRun()
        await scripted.run_turns(
            turn(a_call("gated", id="c1"), a_call("gated", id="c2")), turn("Done.")
        )
        first = await scripted.answer(Action.APPROVE, "c1")
        return scripted, first, await scripted.answer(Action.REJECT, "c2", reason="no")

    scripted, first, second = run_async(scenario())
    assert first.record.status.value == "waiting"
    assert {state.call.id: state.status for state in first.calls} == {
        "c1": CallStatus.SUCCEEDED,
        "c2": CallStatus.SUSPENDED,
    }
    assert second.record.is_done
    assert len(scripted.requests) == 2
    assert [one["tool_call_id"] for one in events(second, "tool_call_resumed")] == ["c1", "c2"]


def test_parallel_tools_both_fail_independently() -> None:
    calls = [a_call("failing", id="c1"), a_call("failing", id="c2")]
    rows = run_async(ScriptedRun().run_turns(turn(*calls), turn("Done."), parallel=True))
    assert [text for _, text in texts(rows)[2:4]] == [
        "failing can't do c1",
        "failing can't do c2",
    ]
    assert end(rows)["termination"] == {"type": "natural_end"}


def test_parallel_tools_same_tool_distinct_results() -> None:
    calls = [a_call(id="c1", arguments={"a": 1}), a_call(id="c2", arguments={"a": 2})]
    rows = run_async(ScriptedRun().run_turns(turn(*calls), turn("Done."), parallel=True))
    data = [one["result"]["data"] for one in events(rows, "tool_call_done")]
    assert [(one["did"], one["with"]) for one in data] == [("c1", {"a": 1}), ("c2", {"a": 2})]


def test_parallel_tools_have_independent_state_entries() -> None:
    calls = [a_call("gated", id="c1"), a_call(id="c2"), a_call("asking", id="c3")]
    rows = run_async(ScriptedRun().run_turns(turn(*calls), parallel=True))
    assert {state.call.id: state.status for state in rows.calls} == {
        "c1": CallStatus.SUSPENDED,
        "c2": CallStatus.SUCCEEDED,
        "c3": CallStatus.SUSPENDED,
    }
    assert len({state.idempotency_key for state in rows.calls}) == 3
