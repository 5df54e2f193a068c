"""What a parent gets of a child run: reports, results of its calls, and progress."""

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


def test_a_delegation_is_bounded_and_keeps_children_unless_it_says_otherwise() -> None:
    assert Delegation() == Delegation(max_depth=4, max_children=16, keep=True)


def test_work_can_be_read_back() -> None:
    assert work_from_json(work_to_json(WORK)) == WORK
    assert work_to_json(WORK)["ancestors"] == ["boss", "clerk"]


def test_a_childs_request_inherits_only_the_ticket_policy() -> None:
    own = {"origin": SUBAGENT, "input_message_count": 1, "ancestors": ["boss", "clerk"]}
    assert child_request(WORK, {"limits": {"steps": 1}}) == {**own, "keep": False}
    policy = {"ticket_policy": {"expires_in": 5}}
    assert child_request(WORK, policy) == {**own, "keep": False, **policy}


def test_a_run_is_below_its_ancestors_and_kept_unless_its_request_says_otherwise() -> None:
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
        "status": "completed",
        "succeeded": True,
        "response": "It is 4.",
        "steps": 3,
    }


def test_a_child_without_an_answer_reports_an_empty_one() -> None:
    report = report_of(a_record(), Done(Cancelled(), AT))
    assert (report["status"], report["succeeded"], report["response"]) == ("cancelled", False, "")


def test_a_report_of_failure_names_the_run_and_why() -> None:
    report = report_of_failure(RunId("child"), "its thread is gone")
    assert report == {
        "run_id": "child",
        "status": "failed: its thread is gone",
        "succeeded": False,
    }
    result = result_of_report("ask", report)
    assert result.status is ResultStatus.ERROR
    assert result.message == "The agent's run has failed: its thread is gone"
    assert result.metadata == {"child_run_id": "child"}


def test_the_model_reads_a_report_without_its_ids() -> None:
    report = report_of(a_record(steps=1), Done(NaturalEnd(), AT, "4"))
    result = result_of_report("ask", report)
    assert result.status is ResultStatus.SUCCESS
    shown = {"agent_id": "clerk", "status": "completed", "response": "4", "steps": 1}
    assert result.data == shown
    assert result.metadata == {"child_run_id": "run"}


@pytest.mark.parametrize("report", [None, "x", {}, {"succeeded": False}])
def test_a_report_that_says_nothing_is_a_failure(report: object) -> None:
    result = result_of_report("ask", report)  # type: ignore[arg-type]
    assert (result.status, result.message) == (
        ResultStatus.ERROR,
        "The agent's run has failed",
    )


@pytest.mark.parametrize(
    "state, status, message",
    [
        (Created(True), "running", "at work"),
        (Running(None), "running", "at work"),
        (Waiting(WaitingReason.TOOL_PERMISSION, "x"), "pending", "waits: tool_permission"),
        (Done(NaturalEnd(), AT), "done", "completed"),
        (Done(Cancelled(), AT), "cancelled", "cancelled"),
        (Done(Failed("error", "a: b"), AT), "failed", "failed: a: b"),
    ],
)
def test_a_parent_shows_where_a_child_stands(state: object, status: str, message: str) -> None:
    shown = child_progress(a_record(state=state), "c1", "ask")
    assert (shown["status"], shown["message"]) == (status, message)
    assert (shown["child_run_id"], shown["child_thread_id"]) == ("run", "thread")
    assert (shown["agent_id"], shown["node_id"]) == ("clerk", "tool_call:c1")


@pytest.mark.parametrize("termination", [Stopped("max_rounds", "8"), Failed("error", "x")])
def test_an_end_that_isnt_a_success_is_no_success_for_the_parent(termination: Termination) -> None:
    report = report_of(a_record(), Done(termination, AT, "half"))
    assert not report["succeeded"]
    assert report["status"].startswith("failed: ")
