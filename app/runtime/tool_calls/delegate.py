"""Delegating: a call that gives work to another agent becomes a question that a child run answers, or a
task that one is."""

from app.clock import new_id
from app.domain.agents.capabilities import unsupported_delegate_features, unsupported_message
from app.domain.children.child_runs import (
    CHILD_ACTION,
    ChildWork,
    ancestors_of,
    needs_of,
    progress_content,
    ticket_name_of_child,
    work_to_json,
)
from app.domain.events.run_events import ActivitySnapshot
from app.domain.ids import AgentId, RunId, ThreadId
from app.domain.json_values import as_object
from app.domain.tickets.tickets import TicketKind
from app.domain.tools.tool_calls import CallState, ResumeMode, SuspensionRequest, ToolResult
from app.runtime.active_run import ActiveRun
from app.runtime.agent import UnknownAgentVersion
from app.runtime.state import Change, ChangeBatch, StateKey
from app.runtime.tool_calls.background import begin_task
from app.runtime.tool_calls.batch import ToolBatch

PROGRESS = "tool-call-progress"
CHILDREN: StateKey[int, int] = StateKey(
    "__runtime.children", lambda: 0, apply=lambda before, more: before + more
)
"""How many children the run has had."""


async def plan_child(
    run: ActiveRun, state: CallState, target: AgentId, *, in_background: bool
) -> ChildWork | str:
    """The child run that the call asks for; or why there can't be one."""
    run.state.register([CHILDREN])
    refused = _refusal(run, target)
    if refused is not None:
        return refused
    found = await run.agents.at_version(target, None)
    if isinstance(found, UnknownAgentVersion):
        return found.reason
    needs = needs_of(run.agent.spec.delegation, in_background=in_background)
    lacking = unsupported_delegate_features(found.capabilities, needs)
    if lacking:
        return unsupported_message(target, lacking)
    run.change_state(ChangeBatch([Change(CHILDREN, 1)]))
    return ChildWork(
        run_id=RunId(new_id()),
        thread_id=ThreadId(new_id()),
        agent_id=target,
        agent_version=found.spec.version,
        prompt=_prompt_of(state),
        ancestors=ancestors_of(run.record),
        depth=run.record.lineage.depth + 1,
        keep=run.agent.spec.delegation.keep,
    )


async def open_child_ticket(batch: ToolBatch, state: CallState, work: ChildWork) -> None:
    """Let the call wait for the child's answer."""
    request = SuspensionRequest(
        f"Agent '{work.agent_id}' is at work on it",
        action=CHILD_ACTION,
        resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT,
        suspension_id=ticket_name_of_child(work.run_id),
    )
    await batch.open_ticket(state, request, TicketKind.CHILD, work_to_json(work))
    batch.run.emit(_begins(work, state))


def begin_child_task(run: ActiveRun, state: CallState, work: ChildWork) -> ToolResult:
    """Let the child go on as a task of its parent's, which begins in the commit that holds this result."""
    run.emit(_begins(work, state))
    return begin_task(run, state, work).with_metadata(child_run_id=work.run_id)


def _refusal(run: ActiveRun, target: AgentId) -> str | None:
    bounds = run.agent.spec.delegation
    depth = run.record.lineage.depth + 1
    if depth > bounds.max_depth:
        return f"work can't be passed on {depth} times; {bounds.max_depth} is the most"
    if target in ancestors_of(run.record):
        return f"agent '{target}' waits for this very work; it can't be given it again"
    if run.state.snapshot.get(CHILDREN) >= bounds.max_children:
        return f"this run has given work to {bounds.max_children} others; it can't to any more"
    return None


def _prompt_of(state: CallState) -> str:
    arguments = as_object(state.effective_arguments) or {}
    return str(arguments["prompt"]).strip()


def _begins(work: ChildWork, state: CallState) -> ActivitySnapshot:
    shown = progress_content(
        work.run_id,
        work.thread_id,
        work.agent_id,
        state.call.id,
        state.call.name,
        "running",
        "starts",
    )
    return ActivitySnapshot(state.call.id, PROGRESS, shown, True)
