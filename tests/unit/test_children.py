"""What a parent run gets from a child run: reports, results of its calls, and progress."""

import pytest

from app.domain.agents.specs import Delegation
from app.domain.children.child_runs import (
    SUBAGENT,
    ChildWork,
    ancestors_of,
    child_progress,
    child_request,
    is_kept,
    report_of,
    report_of_failure,
    result_of_report,
    work_from_json,
    work_to_json,
)
from app.domain.ids import AgentId, AgentVersion, RunId, ThreadId
from app.domain.runs.runs import Created, Done, Running, Waiting, WaitingReason
from app.domain.runs.terminations import Cancelled, Failed, NaturalEnd, Stopped, Termination
from app.domain.tools.tool_calls import ResultStatus
from tests.support.records import AT, a_record

WORK = ChildWork(
    run_id=RunId("child"),
    thread_id=ThreadId("child-thread"),
    agent_id=AgentId("helper"),
    agent_version=AgentVersion("v1"),
    prompt="Count.",
    ancestors=(AgentId("boss"), AgentId("clerk")),
    depth=2,
    keep=False,
)


def test_a_delegation_has_bounds_and_keeps_its_children_by_default() -> None:
    assert Delegation() == Delegation(max_depth=4, max_children=16, keep=True)


def test_child_work_survives_a_round_trip() -> None:
    assert work_from_json(work_to_json(WORK)) == WORK
    assert work_to_json(WORK)["ancestors"] == ["boss", "clerk"]


def test_a_childs_request_inherits_only_the_ticket_policy() -> None:
    own = {"origin": SUBAGENT, "input_message_count": 1, "ancestors": ["boss", "clerk"]}
    assert child_request(WORK, {"limits": {"steps": 1}}) == {**own, "keep": False}
    policy = {"ticket_policy": {"expires_in": 5}}
    assert child_request(WORK, policy) == {**own, "keep": False, **policy}


def test_a_child_run_is_one_level_deeper_and_kept_by_default() -> None:
    root = a_record()
    assert ancestors_of(root) == ("clerk",)
    assert is_kept(root)
    child = a_record(agent_id=WORK.agent_id, request=child_request(WORK, {}))
    assert ancestors_of(child) == ("boss", "clerk", "helper")
    assert not is_kept(child)


def test_a_finished_child_reports_its_answer_and_steps() -> None:
    done = Done(NaturalEnd(), AT, "It is 4.")
    assert report_of(a_record(steps=3), done) == {
        "agent_id": "clerk",
        "run_id": "run",
        "outcome": "succeeded",
        "response": "It is 4.",
        "steps": 3,
    }


def test_a_child_without_an_answer_reports_an_empty_answer() -> None:
    report = report_of(a_record(), Done(Cancelled(), AT))
    assert (report["outcome"], report["response"]) == ("cancelled", "")
    result = result_of_report("ask", report)
    assert (result.status, result.message) == (ResultStatus.ERROR, "The agent's run was cancelled")


def test_a_report_of_failure_names_the_run_and_why() -> None:
    report = report_of_failure(RunId("child"), "its thread is gone")
    assert report == {
        "run_id": "child",
        "outcome": "failed",
        "detail": "its thread is gone",
    }
    result = result_of_report("ask", report)
    assert result.status is ResultStatus.ERROR
    assert result.message == "The agent's run has failed: its thread is gone"
    assert result.metadata == {"child_run_id": "child"}


def test_the_model_reads_a_report_without_its_ids() -> None:
    report = report_of(a_record(steps=1), Done(NaturalEnd(), AT, "4"))
    result = result_of_report("ask", report)
    assert result.status is ResultStatus.SUCCESS
    shown = {"agent_id": "clerk", "outcome": "succeeded", "response": "4", "steps": 1}
    assert result.data == shown
    assert result.metadata == {"child_run_id": "run"}


@pytest.mark.parametrize("report", [None, "x", {}, {"outcome": "failed"}])
def test_an_empty_report_is_a_failure(report: object) -> None:
    result = result_of_report("ask", report)  # type: ignore[arg-type]
    assert (result.status, result.message) == (
        ResultStatus.ERROR,
        "The agent's run has failed",
    )


@pytest.mark.parametrize(
    "state, status, outcome, message",
    [
        (Created(True), "running", None, "executing"),
        (Running(None), "running", None, "executing"),
        (Waiting(WaitingReason.TOOL_PERMISSION, "x"), "waiting", None, "waits: tool_permission"),
        (Done(NaturalEnd(), AT), "done", "succeeded", "succeeded"),
        (Done(Cancelled(), AT), "done", "cancelled", "cancelled"),
        (Done(Failed("error", "a: b"), AT), "done", "failed", "a: b"),
    ],
)
def test_a_parent_shows_the_progress_of_a_child(
    state: object, status: str, outcome: str | None, message: str
) -> None:
    shown = child_progress(a_record(state=state), "c1", "ask")
    assert (shown["status"], shown.get("outcome"), shown["message"]) == (status, outcome, message)
    assert (shown["child_run_id"], shown["child_thread_id"]) == ("run", "thread")
    assert (shown["agent_id"], shown["node_id"]) == ("clerk", "tool_call:c1")


@pytest.mark.parametrize(
    "termination, words",
    [
        (Stopped("max_rounds", "8"), ("budget_exceeded", "stopped: max_rounds")),
        (Failed("error", "x"), ("failed", "x")),
    ],
)
def test_a_child_that_didnt_succeed_is_an_error_for_the_parent(
    termination: Termination, words: tuple[str, str]
) -> None:
    report = report_of(a_record(), Done(termination, AT, "half"))
    assert (report["outcome"], report["detail"]) == words
