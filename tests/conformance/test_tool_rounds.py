"""Rounds of tool calls: what a call goes through, what is kept of it, and what a model reads next."""

import pytest

from app.domain.threads.messages import Role
from app.domain.tickets.decisions import Action
from app.domain.tools.tool_calls import CallStatus
from app.llm.scripted.model import turn
from tests.conformance.acting import TOOLS, Story, a_call, events, play, texts
from tests.support.playing import Happening, Kind
from tests.support.thread_rows import Rows


def test_tool_call_state_machine_transitions() -> None:
    """pending ─► running ─► succeeded; nothing is kept of a round that is complete."""

    async def seen() -> list[tuple[CallStatus, ...]]:
        found: list[tuple[CallStatus, ...]] = []
        for at in range(1, 100):
            story = Story()
            calls = turn(a_call(id="c1"), a_call(id="c2"))
            rows = await story.told(calls, turn("Done."), happenings=[Happening(at, Kind.KILL)])
            found.append(tuple(state.status for state in rows.calls))
            if rows.record.is_done:
                return list(dict.fromkeys(found))
        raise AssertionError("no end")

    pending, running, succeeded = CallStatus.PENDING, CallStatus.RUNNING, CallStatus.SUCCEEDED
    assert play(seen()) == [
        (),
        (running, pending),
        (succeeded, pending),
        (succeeded, running),
        (succeeded, succeeded),
    ]


def test_completed_tool_round_clears_state_at_next_step() -> None:
    async def story() -> Rows:
        told = Story()
        return await told.told(turn(a_call(id="c1")), turn(a_call("gated", id="c2")))

    rows = play(story())
    assert [(state.call.id, state.step_index) for state in rows.calls] == [("c2", 1)]


def test_sequential_steps_see_fresh_tool_state() -> None:
    """A model may use a call's id again: that is another call, with a key of its own."""

    async def story() -> Rows:
        told = Story()
        return await told.told(turn(a_call()), turn(a_call(arguments={"a": 2})), turn("Done."))

    rows = play(story())
    assert [one["step"] for one in events(rows, "tool_call_done")] == [1, 2]
    assert [one["result"]["data"]["with"] for one in events(rows, "tool_call_done")] == [
        {},
        {"a": 2},
    ]
    assert [one["result"]["data"]["times"] for one in events(rows, "tool_call_done")] == [1, 1]


def test_tool_execution_preserves_arguments() -> None:
    arguments = {"text": "ä \n", "list": [1, None, {"deep": True}], "number": 1.5}

    async def story() -> Rows:
        return await Story().told(turn(a_call(arguments=arguments)), turn("Done."))

    rows = play(story())
    assert events(rows, "tool_call_done")[0]["result"]["data"]["with"] == arguments
    assert events(rows, "tool_call_ready")[0]["arguments"] == arguments
    assert rows.log[1].message.tool_calls[0].arguments == arguments


def test_message_ordering_preserved_in_inference_request() -> None:
    async def story() -> Story:
        told = Story()
        await told.told(turn("One.", a_call(id="c1"), a_call(id="c2")), turn("Two."))
        await told.told(turn("Three."))
        return told

    first, second, third = play(story()).requests
    assert [message.role for message in first.messages] == [Role.USER]
    asked = [Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL]
    assert [message.role for message in second.messages] == asked
    assert [message.role for message in third.messages] == [*asked, Role.ASSISTANT, Role.USER]
    assert [message.tool_call_id for message in third.messages[2:4]] == ["c1", "c2"]


def test_tool_results_visible_in_next_step_messages() -> None:
    async def story() -> Story:
        told = Story()
        await told.told(turn(a_call("failing"), a_call(id="c2")), turn("Done."))
        return told

    told = play(story())
    shown = [(one.role.value, one.text) for one in told.requests[1].messages]
    assert shown == texts(told.rows)[:4]
    assert shown[2] == ("tool", "failing can't do c1")


def test_tool_descriptors_sorted_by_id_and_always_sent() -> None:
    async def story() -> Story:
        told = Story()
        await told.told(turn(a_call()), turn("Done."))
        return told

    for request in play(story()).requests:
        names = [tool.name for tool in request.tools]
        assert names == sorted(names)
        assert set(names) == set(TOOLS)
        assert request.system_prompt == "You are a test."


@pytest.mark.parametrize("action", [Action.APPROVE, Action.REJECT, Action.RESPOND, Action.CANCEL])
def test_full_suspend_resume_complete_lifecycle(action: Action) -> None:
    async def story() -> tuple[Story, Rows, Rows]:
        told = Story()
        before = await told.told(turn(a_call("gated", arguments={"a": 1})), turn("Done."))
        return told, before, await told.answered(action, result={"said": "so"})

    told, before, after = play(story())
    assert before.record.status.value == "waiting"
    assert after.record.status.value == "done"
    assert len(events(after, "run_start")) == len(events(after, "run_finish")) == 2
    assert len(events(after, "tool_call_resumed")) == 1
    assert len(told.requests) == 2
    outcome = {
        Action.APPROVE: '{"did":"c1","times":1,"with":{"a":1}}',
        Action.REJECT: "Denied: a person rejected this call",
        Action.RESPOND: '{"said":"so"}',
        Action.CANCEL: '{"said":"so"}',
    }
    [shown] = [one.text for one in told.requests[1].messages if one.role is Role.TOOL]
    assert sorted(shown) == sorted(outcome[action])


def test_suspension_preserves_original_arguments() -> None:
    async def story() -> tuple[Story, Rows]:
        told = Story()
        await told.told(turn(a_call("gated", arguments={"a": 1})), turn("Done."))
        return told, await told.answered(Action.EDIT, arguments={"a": 2})

    told, rows = play(story())
    assert rows.log[1].message.tool_calls[0].arguments == {"a": 1}
    assert told.requests[1].messages[1].tool_calls[0].arguments == {"a": 2}
    [ticket] = rows.tickets
    assert ticket.arguments == {"a": 1}
