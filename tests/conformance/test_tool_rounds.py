"""Rounds of tool calls: the states of a call, its rows, and what the model reads next."""

import pytest

from app.domain.threads.messages import Role
from app.domain.tickets.decisions import Action
from app.domain.tools.tool_calls import CallStatus
from app.llm.scripted.model import turn
from tests.conformance.scripted_runs import TOOLS, ScriptedRun, a_call, events, run_async, texts
from tests.support.thread_driver import Incident, IncidentKind
from tests.support.thread_rows import Rows


def test_tool_call_state_machine_transitions() -> None:
    """pending ─► running ─► succeeded; rows of a complete round are deleted."""

    async def seen() -> list[tuple[CallStatus, ...]]:
        found: list[tuple[CallStatus, ...]] = []
        for at in range(1, 100):
            scripted = ScriptedRun()
            calls = turn(a_call(id="c1"), a_call(id="c2"))
            rows = await scripted.run_turns(
                calls, turn("Done."), incidents=[Incident(at, IncidentKind.KILL)]
            )
            found.append(tuple(state.status for state in rows.calls))
            if rows.record.is_done:
                return list(dict.fromkeys(found))
        raise AssertionError("no end")

    pending, running, succeeded = CallStatus.PENDING, CallStatus.RUNNING, CallStatus.SUCCEEDED
    assert run_async(seen()) == [
        (),
        (running, pending),
        (succeeded, pending),
        (succeeded, running),
        (succeeded, succeeded),
    ]


def test_completed_tool_round_clears_state_at_next_step() -> None:
    async def scenario() -> Rows:
        scripted = ScriptedRun()
        return await scripted.run_turns(turn(a_call(id="c1")), turn(a_call("gated", id="c2")))

    rows = run_async(scenario())
    assert [(state.call.id, state.step_index) for state in rows.calls] == [("c2", 1)]


def test_sequential_steps_see_fresh_tool_state() -> None:
    """A model may use a call's id again: that is another call, with a key of its own."""

    async def scenario() -> Rows:
        scripted = ScriptedRun()
        return await scripted.run_turns(
            turn(a_call()), turn(a_call(arguments={"a": 2})), turn("Done.")
        )

    rows = run_async(scenario())
    assert [one["step"] for one in events(rows, "tool_call_done")] == [1, 2]
    assert [one["result"]["data"]["with"] for one in events(rows, "tool_call_done")] == [
        {},
        {"a": 2},
    ]
    assert [one["result"]["data"]["times"] for one in events(rows, "tool_call_done")] == [1, 1]


def test_tool_execution_preserves_arguments() -> None:
    arguments = {"text": "ä \n", "list": [1, None, {"deep": True}], "number": 1.5}

    async def scenario() -> Rows:
        return await ScriptedRun().run_turns(turn(a_call(arguments=arguments)), turn("Done."))

    rows = run_async(scenario())
    assert events(rows, "tool_call_done")[0]["result"]["data"]["with"] == arguments
    assert events(rows, "tool_call_ready")[0]["arguments"] == arguments
    assert rows.log[1].message.tool_calls[0].arguments == arguments


def test_message_ordering_preserved_in_inference_request() -> None:
    async def scenario() -> ScriptedRun:
        scripted = ScriptedRun()
        await scripted.run_turns(turn("One.", a_call(id="c1"), a_call(id="c2")), turn("Two."))
        await scripted.run_turns(turn("Three."))
        return scripted

    first, second, third = run_async(scenario()).requests
    assert [message.role for message in first.messages] == [Role.USER]
    asked = [Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL]
    assert [message.role for message in second.messages] == asked
    assert [message.role for message in third.messages] == [*asked, Role.ASSISTANT, Role.USER]
    assert [message.tool_call_id for message in third.messages[2:4]] == ["c1", "c2"]


def test_tool_results_visible_in_next_step_messages() -> None:
    async def scenario() -> ScriptedRun:
        scripted = ScriptedRun()
        await scripted.run_turns(turn(a_call("failing"), a_call(id="c2")), turn("Done."))
        return scripted

    scripted = run_async(scenario())
    shown = [(one.role.value, one.text) for one in scripted.requests[1].messages]
    assert shown == texts(scripted.rows)[:4]
    assert shown[2] == ("tool", "failing can't do c1")


def test_tool_descriptors_sorted_by_id_and_always_sent() -> None:
    async def scenario() -> ScriptedRun:
        scripted = ScriptedRun()
        await scripted.run_turns(turn(a_call()), turn("Done."))
        return scripted

    for request in run_async(scenario()).requests:
        names = [tool.name for tool in request.tools]
        assert names == sorted(names)
        assert set(names) == set(TOOLS)
        assert request.system_prompt == "You are a test."


@pytest.mark.parametrize("action", [Action.APPROVE, Action.REJECT, Action.RESPOND, Action.CANCEL])
def test_full_suspend_resume_complete_lifecycle(action: Action) -> None:
    async def scenario() -> tuple[ScriptedRun, Rows, Rows]:
        scripted = ScriptedRun()
        before = await scripted.run_turns(turn(a_call("gated", arguments={"a": 1})), turn("Done."))
        return scripted, before, await scripted.answer(action, result={"said": "so"})

    scripted, before, after = run_async(scenario())
    assert before.record.status.value == "waiting"
    assert after.record.status.value == "done"
    assert len(events(after, "run_start")) == len(events(after, "run_finish")) == 2
    assert len(events(after, "tool_call_resumed")) == 1
    assert len(scripted.requests) == 2
    outcome = {
        Action.APPROVE: '{"did":"c1","times":1,"with":{"a":1}}',
        Action.REJECT: "Denied: a person rejected this call",
        Action.RESPOND: '{"said":"so"}',
        Action.CANCEL: '{"said":"so"}',
    }
    [shown] = [one.text for one in scripted.requests[1].messages if one.role is Role.TOOL]
    assert sorted(shown) == sorted(outcome[action])


def test_suspension_preserves_original_arguments() -> None:
    async def scenario() -> tuple[ScriptedRun, Rows]:
        scripted = ScriptedRun()
        await scripted.run_turns(turn(a_call("gated", arguments={"a": 1})), turn("Done."))
        return scripted, await scripted.answer(Action.EDIT, arguments={"a": 2})

    scripted, rows = run_async(scenario())
    assert rows.log[1].message.tool_calls[0].arguments == {"a": 1}
    assert scripted.requests[1].messages[1].tool_calls[0].arguments == {"a": 2}
    [ticket] = rows.tickets
    assert ticket.arguments == {"a": 1}
