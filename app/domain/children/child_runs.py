"""Child runs: runs of other agents that a run starts, and their reports.

A child is an ordinary run on its own thread. Its parent's call waits with a ticket of kind `child`, which only
the child's end answers. Or the call returns at once, and the child is a background task of the parent. Parent
and child exchange follow-ups, because no transaction ever locks both threads.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from app.domain.agents.backend_results import BackendFailed, status_of_termination
from app.domain.agents.capabilities import DelegateNeeds
from app.domain.ids import AgentId, AgentVersion, RunId, ThreadId
from app.domain.json_values import Json, JsonObject, as_object, without_none
from app.domain.runs.runs import CONTEXT, Done, RunRecord, Waiting
from app.domain.runs.terminations import Outcome, Termination, outcome
from app.domain.tools.tool_calls import ToolResult

SUBAGENT = "Subagent"
"""The origin of a child's request."""
CHILD_ACTION = "agent_delegate:running"


def delegate_needs(*, in_background: bool) -> DelegateNeeds:
    """What a child run needs. A background child may get further messages, so it needs another turn."""
    return DelegateNeeds(continuation=in_background)


def delegate_tool_name(agent_id: AgentId) -> str:
    """The name of the tool that starts a child run of an agent."""
    return f"agent_run_{agent_id}"


class ChildWork(Struct, frozen=True, kw_only=True):
    """A child run to start, as its parent's ticket or task keeps it. Its ids are fixed, so repeated starts
    create one child."""

    run_id: RunId
    thread_id: ThreadId
    agent_id: AgentId
    agent_version: AgentVersion
    prompt: str
    ancestors: tuple[AgentId, ...]
    """The agents of the runs above it, beginning with the root."""
    depth: int
    keep: bool


def work_to_json(work: ChildWork) -> dict[str, Any]:
    return {**asdict(work), "ancestors": list(work.ancestors)}


def work_from_json(raw: JsonObject) -> ChildWork:
    return ChildWork(**{**raw, "ancestors": tuple(raw["ancestors"])})


def ticket_name_of_child(run_id: RunId) -> str:
    return f"delegate_run:{run_id}"


def child_request(work: ChildWork, parent_request: JsonObject) -> dict[str, Any]:
    """The request of a child run; it inherits the ticket policy and the context."""
    inherited = {
        key: parent_request[key] for key in ("ticket_policy", CONTEXT) if key in parent_request
    }
    return {
        "origin": SUBAGENT,
        "input_message_count": 1,
        "ancestors": list(work.ancestors),
        "keep": work.keep,
        **inherited,
    }


def ancestors_of(record: RunRecord) -> tuple[AgentId, ...]:
    """The agents of the runs above this one, and its own."""
    above = record.request.get("ancestors", ())
    return (*(AgentId(each) for each in above), record.agent_id)


def is_kept(record: RunRecord) -> bool:
    return bool(record.request.get("keep", True))


# --- reports to the parent ------------------------------------------------------------------------


def report_of(child: RunRecord, done: Done) -> dict[str, Any]:
    """The report of a finished child, for its parent's call."""
    return {
        "agent_id": child.agent_id,
        "run_id": child.id,
        "outcome": outcome(done.termination).value,
        **without_none({"detail": _detail(done.termination)}),
        "response": done.final_output or "",
        **without_none({"structured_output": done.structured_output}),
        "steps": child.steps,
    }


def _detail(termination: Termination) -> str | None:
    """Why a child didn't succeed, in words."""
    match status_of_termination(termination):
        case BackendFailed(message):
            return message
    return None


def report_of_failure(run_id: RunId, why: str) -> dict[str, Any]:
    """The report of a child that never finished, made for its parent."""
    return {"run_id": run_id, "outcome": Outcome.FAILED.value, "detail": why}


def result_of_report(tool_name: str, report: Json) -> ToolResult:
    """The result of the parent's call: the report, or an error for the model."""
    body = as_object(report) or {}
    if body.get("outcome") == Outcome.SUCCEEDED.value:
        shown = {key: value for key, value in body.items() if key != "run_id"}
        result = ToolResult.success(tool_name, shown)
    else:
        result = ToolResult.error(tool_name, _failure(body))
    return result.with_metadata(child_run_id=body.get("run_id"))


def _failure(report: JsonObject) -> str:
    was_cancelled = report.get("outcome") == Outcome.CANCELLED.value
    words = "The agent's run was cancelled" if was_cancelled else "The agent's run has failed"
    return f"{words}: {report['detail']}" if "detail" in report else words


def child_progress(child: RunRecord, call_id: str, tool_name: str) -> dict[str, Json]:
    """The progress activity of a child on its parent's stream."""
    outcome_word = None
    match child.state:
        case Done(termination):
            outcome_word = outcome(termination).value
            status, message = "done", _detail(termination) or outcome_word
        case Waiting(reason):
            status, message = "waiting", f"waits: {reason.value}"
        case _:
            status, message = "running", "executing"
    shown = progress_content(
        child.id, child.thread_id, child.agent_id, call_id, tool_name, status, message
    )
    return {**shown, **without_none({"outcome": outcome_word})}


def progress_content(
    run_id: RunId,
    thread_id: ThreadId,
    agent_id: AgentId,
    call_id: str,
    tool_name: str,
    status: str,
    message: str,
) -> dict[str, Json]:
    return {
        "schema": "tool-call-progress.v1",
        "node_id": f"tool_call:{call_id}",
        "tool_call_id": call_id,
        "tool_name": tool_name,
        "status": status,
        "message": message,
        "agent_id": agent_id,
        "child_run_id": run_id,
        "child_thread_id": thread_id,
    }
