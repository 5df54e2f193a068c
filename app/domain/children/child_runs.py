"""Children: runs that an agent starts to have work done by another one, and what becomes of them.

A child is a run like any other, on a thread of its own. Its parent's call waits for it behind a ticket of
kind `child`, which nobody but the child's end answers; or the call is over at once, and the child is a
task of its parent's, which ends when the child does. What one of them has to know of the other travels as
an errand: no transaction ever locks the threads of both.
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
from app.domain.agents.specs import Delegation
from app.domain.ids import AgentId, AgentVersion, RunId, ThreadId
from app.domain.json_values import Json, JsonObject, as_object
from app.domain.runs.runs import Done, RunRecord, Waiting
from app.domain.tools.tool_calls import ToolResult

SUBAGENT = "Subagent"
"""The origin of a child's request."""
CHILD_ACTION = "agent_delegate:running"


def needs_of(delegation: Delegation, *, in_background: bool) -> DelegateNeeds:
    """What a child is asked for. One that goes on in the background may be told more at any moment, and has
    another turn for it."""
    return DelegateNeeds(persistence=delegation.keep, continuation=in_background)


def delegate_tool_name(agent_id: AgentId) -> str:
    """What the tool is called that gives work to an agent."""
    return f"agent_run_{agent_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildWork:
    """What a child is to do, as its parent's ticket or task keeps it. The ids are given beforehand: however
    often it is started, there is one child."""

    run_id: RunId
    thread_id: ThreadId
    agent_id: AgentId
    agent_version: AgentVersion
    prompt: str
    ancestors: tuple[AgentId, ...]
    """The agents of the runs above it, the first one first."""
    depth: int
    keep: bool


def work_to_json(work: ChildWork) -> dict[str, Any]:
    return {**asdict(work), "ancestors": list(work.ancestors)}


def work_from_json(raw: JsonObject) -> ChildWork:
    return ChildWork(**{**raw, "ancestors": tuple(raw["ancestors"])})


def ticket_name_of_child(run_id: RunId) -> str:
    return f"delegate_run:{run_id}"


def child_request(work: ChildWork, of_parent: JsonObject) -> dict[str, Any]:
    """The request of a child's run; how long tickets wait is inherited."""
    inherited = {key: of_parent[key] for key in ("ticket_policy",) if key in of_parent}
    return {
        "origin": SUBAGENT,
        "input_message_count": 1,
        "ancestors": list(work.ancestors),
        "keep": work.keep,
        **inherited,
    }


def ancestors_of(record: RunRecord) -> tuple[AgentId, ...]:
    """The agents above a run, and its own."""
    above = record.request.get("ancestors", ())
    return (*(AgentId(each) for each in above), record.agent_id)


def is_kept(record: RunRecord) -> bool:
    return bool(record.request.get("keep", True))


# --- what a parent gets ---------------------------------------------------------------------------


def report_of(child: RunRecord, done: Done) -> dict[str, Any]:
    """What a child has come to, for its parent's call."""
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
    """What a parent gets of a child that can't report by itself."""
    return {"run_id": run_id, "status": display(BackendFailed(why)), "succeeded": False}


def result_of_report(tool_name: str, report: Json) -> ToolResult:
    """The child's report as the result of the call: an answer, or an error that the model can read."""
    body = as_object(report) or {}
    shown = {key: value for key, value in body.items() if key not in ("succeeded", "run_id")}
    if body.get("succeeded"):
        result = ToolResult.success(tool_name, shown)
    else:
        result = ToolResult.error(tool_name, f"The agent's run has {body.get('status', 'failed')}")
    return result.with_metadata(child_run_id=body.get("run_id"))


def child_progress(child: RunRecord, call_id: str, tool_name: str) -> dict[str, Json]:
    """What a parent's stream shows of a child: where it stands, and what it waits for."""
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
