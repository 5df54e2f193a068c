"""Delegating: a call to another agent becomes a ticket of kind `child`, or a background task with a child
run."""

from app.clock import new_id
from app.domain.agents.capabilities import unsupported_delegate_features, unsupported_message
from app.domain.children.child_runs import (
    CHILD_ACTION,
    ChildWork,
    ancestors_of,
    delegate_needs,
    progress_content,
    ticket_name_of_child,
    work_to_json,
)
from app.domain.events.tool_call_events import ActivitySnapshot
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
"""The number of children that the run has started."""


async def plan_child(
    run: ActiveRun, state: CallState, target: AgentId, *, in_background: bool
) -> ChildWork | str:
    """The child run for the call, or the reason why there can't be one."""
    run.state.register([CHILDREN])
    refusal = _refusal(run, target)
    if refusal is not None:
        return refusal
    found = await run.agents.at_version(target, None)
    if isinstance(found, UnknownAgentVersion):
        return found.reason
    needs = delegate_needs(in_background=in_background)
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
    """Open the ticket that the child's end answers."""
    request = SuspensionRequest(
        f"Agent '{work.agent_id}' is executing it",
        action=CHILD_ACTION,
        resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT,
        suspension_id=ticket_name_of_child(work.run_id),
    )
    await batch.open_ticket(state, request, TicketKind.CHILD, work_to_json(work))
    batch.run.emit(_start_activity(work, state))


def begin_child_task(run: ActiveRun, state: CallState, work: ChildWork) -> ToolResult:
    """Make the child a background task, which starts with the commit of this result."""
    run.emit(_start_activity(work, state))
    return begin_task(run, state, work).with_metadata(child_run_id=work.run_id)


def _refusal(run: ActiveRun, target: AgentId) -> str | None:
    limits = run.agent.spec.delegation
    depth = run.record.lineage.depth + 1
    if depth > limits.max_depth:
        return f"a child run at depth {depth} isn't allowed; the limit is {limits.max_depth}"
    if target in ancestors_of(run.record):
        return f"agent '{target}' already waits for this work, so it can't be called again"
    if run.state.snapshot.get(CHILDREN) >= limits.max_children:
        return f"this run has started {limits.max_children} child runs, and may start no more"
    return None


def _prompt_of(state: CallState) -> str:
    arguments = as_object(state.effective_arguments) or {}
    return str(arguments["prompt"]).strip()


def _start_activity(work: ChildWork, state: CallState) -> ActivitySnapshot:
    content = progress_content(
        work.run_id,
        work.thread_id,
        work.agent_id,
        state.call.id,
        state.call.name,
        "running",
        "starts",
    )
    return ActivitySnapshot(state.call.id, PROGRESS, content, True)
