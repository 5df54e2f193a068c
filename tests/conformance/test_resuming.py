"""Suspension and resumption: what a person's answer does to the call that it is about."""

from typing import Any

from app.domain.threads.messages import Role
from app.domain.tickets.decisions import Action
from app.domain.tools.tool_calls import INTERRUPTED, CallStatus, ResumeMode
from app.llm.scripted.model import Call, turn
from tests.conformance.acting import Story, a_call, end, events, play, texts
from tests.support.thread_rows import Rows


def resumed(*calls: Call, action: Action, **more: Any) -> tuple[Story, Rows]:
    """A run whose only question, about its first call, was answered so."""

    async def told() -> tuple[Story, Rows]:
        story = Story()
        await story.told(turn(*calls), turn("Done."))
        return story, await story.answered(action, **more)

    return play(told())


def result_of(rows: Rows) -> Any:
    [event] = events(rows, "tool_call_resumed")
    assert event["target_id"] == "c1"
    return event["result"]


def test_sequential_tools_stop_after_first_suspension() -> None:
    async def told() -> Rows:
        return await Story().told(
            turn(a_call(id="c0"), a_call("asking", id="c1"), a_call(id="c2"), a_call(id="c3"))
        )

    rows = play(told())
    outcomes = {one["id"]: one["outcome"] for one in events(rows, "tool_call_done")}
    assert outcomes == {
        "c0": "succeeded",
        "c1": "suspended",
        "c2": "failed",
        "c3": "failed",
    }
    assert texts(rows)[-2:] == [("tool", INTERRUPTED)] * 2
    assert [one.call_id for one in rows.open_tickets] == ["c1"]


def test_decision_channel_resume_resolves_suspended_call() -> None:
    story, rows = resumed(a_call("gated"), action=Action.APPROVE)
    assert rows.record.is_done
    assert rows.calls == ()
    assert end(rows)["result"]["response"] == "Done."
    assert len(story.requests) == 2


def test_replay_tool_call_executes_original_tool() -> None:
    _, rows = resumed(a_call("gated", arguments={"a": 1}), action=Action.APPROVE)
    assert result_of(rows) == {"did": "c1", "with": {"a": 1}, "times": 1}
    [ticket] = rows.tickets
    assert ticket.resume_mode is ResumeMode.REPLAY_TOOL_CALL


def test_use_decision_records_decision_payload_without_rewriting_arguments() -> None:
    story, rows = resumed(
        a_call("deciding", arguments={"a": 1}), action=Action.RESPOND, result={"it": "is so"}
    )
    assert result_of(rows) == {"it": "is so"}
    [ticket] = rows.tickets
    assert ticket.resume_mode is ResumeMode.USE_DECISION_AS_TOOL_RESULT
    assert ticket.decision is not None
    assert ticket.decision.answer.payload == {"it": "is so"}
    assert story.requests[1].messages[1].tool_calls[0].arguments == {"a": 1}


def test_pass_decision_records_decision_payload_without_rewriting_arguments() -> None:
    """The other gave the tool the decision in place of its arguments; here it is beside them."""
    story, rows = resumed(
        a_call("passing", arguments={"a": 1}), action=Action.APPROVE, result={"it": "is so"}
    )
    assert result_of(rows) == {"did": "c1", "with": {"a": 1}, "times": 2}
    assert story.requests[1].messages[1].tool_calls[0].arguments == {"a": 1}


def test_resume_with_empty_decision_result_succeeds() -> None:
    for tool in ("gated", "asking", "passing"):
        _, rows = resumed(a_call(tool), action=Action.APPROVE)
        assert end(rows)["termination"] == {"type": "natural_end"}
    _, rows = resumed(a_call("deciding"), action=Action.RESPOND)
    assert result_of(rows) is None
    assert end(rows)["termination"] == {"type": "natural_end"}


def test_cancel_decision_marks_tool_cancelled() -> None:
    """The call is over, and the run goes on to its natural end."""
    story, rows = resumed(a_call("gated"), action=Action.CANCEL, reason="better not")
    assert result_of(rows) == "better not"
    assert end(rows)["termination"] == {"type": "natural_end"}
    [shown] = [one.text for one in story.requests[1].messages if one.role is Role.TOOL]
    assert shown == "better not"


def test_one_of_two_answers_keeps_the_run_waiting() -> None:
    """The other forgot what was done meanwhile, when it died before the second answer."""

    async def told() -> tuple[Story, Rows, Rows]:
        story = Story()
        await story.told(turn(a_call("gated", id="c1"), a_call("gated", id="c2")), turn("Done."))
        first = await story.answered(Action.APPROVE, "c1")
        return story, first, await story.answered(Action.REJECT, "c2", reason="no")

    story, first, second = play(told())
    assert first.record.status.value == "waiting"
    assert {state.call.id: state.status for state in first.calls} == {
        "c1": CallStatus.SUCCEEDED,
        "c2": CallStatus.SUSPENDED,
    }
    assert second.record.is_done
    assert len(story.requests) == 2
    assert [one["target_id"] for one in events(second, "tool_call_resumed")] == ["c1", "c2"]


def test_parallel_tools_both_fail_independently() -> None:
    calls = [a_call("failing", id="c1"), a_call("failing", id="c2")]
    rows = play(Story().told(turn(*calls), turn("Done."), parallel=True))
    assert [text for _, text in texts(rows)[2:4]] == [
        "failing can't do c1",
        "failing can't do c2",
    ]
    assert end(rows)["termination"] == {"type": "natural_end"}


def test_parallel_tools_same_tool_distinct_results() -> None:
    calls = [a_call(id="c1", arguments={"a": 1}), a_call(id="c2", arguments={"a": 2})]
    rows = play(Story().told(turn(*calls), turn("Done."), parallel=True))
    data = [one["result"]["data"] for one in events(rows, "tool_call_done")]
    assert [(one["did"], one["with"]) for one in data] == [("c1", {"a": 1}), ("c2", {"a": 2})]


def test_parallel_tools_have_independent_state_entries() -> None:
    calls = [a_call("gated", id="c1"), a_call(id="c2"), a_call("asking", id="c3")]
    rows = play(Story().told(turn(*calls), parallel=True))
    assert {state.call.id: state.status for state in rows.calls} == {
        "c1": CallStatus.SUSPENDED,
        "c2": CallStatus.SUCCEEDED,
        "c3": CallStatus.SUSPENDED,
    }
    assert len({state.idempotency_key for state in rows.calls}) == 3
