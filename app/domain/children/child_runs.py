"""Child runs: runs of other agents that a run starts, and their reports.

A child is an ordinary run on its own thread. Its parent's call waits with a ticket of kind `child`, which only
the child's end answers. Or the call returns at once, and the child is a background task of the parent. Parent
and child exchange follow-ups, because no transaction ever locks both threads.
"""

from dataclasses import asdict, dataclass
from typing import Any

from app.domain.agents.backend_results import (
    BackendFailed,
    Completed,
    display,
    status_of_termination,
)
from app.domain.agents.capabilities import DelegateNeeds
from app.domain.ids import AgentId, AgentVersion, RunId, ThreadId
from app.domain.json_values import Json, JsonObject, as_object
from app.domain.runs.runs import Done, RunRecord, Waiting
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildWork:
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
    """The request of a child run; it inherits the ticket policy."""
    inherited = {key: parent_request[key] for key in ("ticket_policy",) if key in parent_request}
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
    status = status_of_termination(done.termination)
    return {
        "agent_id": child.agent_id,
        "run_id": child.id,
        "status": display(status),
        "succeeded": isinstance(status, Completed),
        "response": done.final_output or "",
        "steps": child.steps,
    }


def report_of_failure(run_id: RunId, why: str) -> dict[str, Any]:
    """The report of a child that never finished, made for its parent."""
    return {"run_id": run_id, "status": display(BackendFailed(why)), "succeeded": False}


def result_of_report(tool_name: str, report: Json) -> ToolResult:
    """The result of the parent's call: the report, or an error for the model."""
    body = as_object(report) or {}
    shown = {key: value for key, value in body.items() if key not in ("succeeded", "run_id")}
    if body.get("succeeded"):
        result = ToolResult.success(tool_name, shown)
    else:
        result = ToolResult.error(tool_name, f"The agent's run has {body.get('status', 'failed')}")
    return result.with_metadata(child_run_id=body.get("run_id"))


def child_progress(child: RunRecord, call_id: str, tool_name: str) -> dict[str, Json]:
    """The progress activity of a child on its parent's stream."""
    match child.state:
        case Done(termination):
            status = status_of_termination(termination)
            word = "done" if isinstance(status, Completed) else display(status).partition(":")[0]
            message = display(status)
        case Waiting(reason):
            word, message = "pending", f"waits: {reason.value}"
        case _:
            word, message = "running", "at work"
    return progress_content(
        child.id, child.thread_id, child.agent_id, call_id, tool_name, word, message
    )


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
        "call_id": call_id,
        "tool_name": tool_name,
        "status": status,
        "message": message,
        "agent_id": agent_id,
        "child_run_id": run_id,
        "child_thread_id": thread_id,
    }
