"""Checkpoints: the rows of a run after each step, and at its end."""

from app.domain.runs.runs import Done, Waiting, WaitingReason
from app.domain.threads.messages import MessageRange
from app.domain.tools.tool_calls import INTERRUPTED, CallStatus
from app.llm.scripted.model import turn
from tests.conformance.scripted_runs import SPEC, ScriptedRun, a_call, run_async, run_turns, texts
from tests.support.thread_driver import Incident, IncidentKind
from tests.support.thread_rows import Rows


def killed_in_step_two() -> Rows:
    """A run whose worker was killed after its first step, with the checkpoint of that step."""

    async def scenario() -> Rows:
        for at in range(1, 100):
            scripted = ScriptedRun()
            turns = (turn("Let me see.", a_call(arguments={"a": 1})), turn("Done."))
            await scripted.run_turns(*turns, incidents=[Incident(at, IncidentKind.KILL)])
            if scripted.rows.record.steps == 1:
                return scripted.rows
        raise AssertionError("no first step")

    return run_async(scenario())


def test_checkpoint_receives_data() -> None:
    rows = killed_in_step_two()
    assert rows.record.status.value == "running"
    assert rows.record.steps == 1
    assert [role for role, _ in texts(rows)] == ["user", "assistant", "tool"]
    assert rows.calls == ()


def test_checkpoint_has_correct_step_count() -> None:
    rows = run_turns(turn(a_call(id="c1")), turn(a_call(id="c2")), turn("Done."))
    assert rows.record.steps == 3
    assert [entry.message.step_index for entry in rows.log] == [None, 0, 0, 1, 1, 2]


def test_checkpoint_has_state_blob() -> None:
    rows = killed_in_step_two()
    assert rows.record.run_state is not None
    lifecycle = rows.record.run_state["extensions"]["__runtime.run_lifecycle"]
    assert lifecycle["run_id"] == rows.record.id
    assert (lifecycle["status"], lifecycle["step_count"]) == ("running", 1)


def test_checkpoint_has_thread_messages() -> None:
    rows = killed_in_step_two()
    assert [entry.seq for entry in rows.log] == [1, 2, 3]
    assert rows.record.input is not None
    assert rows.record.input.range == MessageRange(1, 1)
    assert rows.record.output.range == MessageRange(2, 3)
    produced = [entry.message.id for entry in rows.log[1:]]
    assert list(rows.record.output.message_ids) == produced
    assert {entry.message.run_id for entry in rows.log[1:]} == {rows.record.id}


def test_checkpoint_has_agent_id() -> None:
    assert killed_in_step_two().record.agent_id == SPEC.id


def test_checkpoint_output_supports_child_result_lookup_after_tool_messages() -> None:
    rows = run_turns(turn("Let me see.", a_call()), turn("Done."))
    assert isinstance(rows.record.state, Done)
    assert rows.record.state.final_output == "Done."
    last = rows.record.output.message_ids[-1]
    assert [entry.message.text for entry in rows.log if entry.message.id == last] == ["Done."]


def test_checkpoint_stores_suspended_tool_batch_consistently() -> None:
    """A tool that suspends stops the calls after it; every call has its message."""
    rows = run_turns(turn(a_call("asking", id="c1"), a_call(id="c2")))
    assert [role for role, _ in texts(rows)] == ["user", "assistant", "tool", "tool"]
    assert len(rows.log[1].message.tool_calls) == 2
    assert texts(rows)[2:] == [("tool", "Question 1?"), ("tool", INTERRUPTED)]
    assert [entry.message.tool_call_id for entry in rows.log[2:]] == ["c1", "c2"]


def test_a_waiting_run_is_stored_with_its_ticket() -> None:
    rows = run_turns(turn(a_call("gated", arguments={"a": 1})))
    assert rows.record.state == Waiting(WaitingReason.TOOL_PERMISSION, "suspended")
    [ticket] = rows.tickets
    assert (ticket.call_id, ticket.tool_name, ticket.arguments) == ("c1", "gated", {"a": 1})
    assert [state.status for state in rows.calls] == [CallStatus.SUSPENDED]


def test_token_usage_accumulates_across_steps() -> None:
    one, three = (
        run_turns(turn("Done.")),
        run_turns(turn(a_call()), turn(a_call(id="c2")), turn("Done.")),
    )
    assert one.record.usage.input_tokens < three.record.usage.input_tokens
    assert one.record.usage.output_tokens < three.record.usage.output_tokens
