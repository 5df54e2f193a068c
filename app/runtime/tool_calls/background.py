"""Background work of a run: calls that become tasks, and when nothing is left to answer."""

from app.clock import new_id
from app.domain.children.background_tasks import NewTask, started_result
from app.domain.children.child_runs import ChildWork
from app.domain.ids import TASK_PREFIX, TaskId
from app.domain.json_values import as_object
from app.domain.threads.messages import Role
from app.domain.tools.tool_calls import CallState, ToolResult
from app.runtime.active_run import ActiveRun


def begin_task(run: ActiveRun, state: CallState, child: ChildWork | None = None) -> ToolResult:
    """Let a call go on as a task, which begins in the commit that holds this result."""
    task = NewTask(
        id=TaskId(TASK_PREFIX + new_id()),
        agent_id=run.agent.spec.id,
        agent_version=run.agent.spec.version,
        call_id=state.call.id,
        tool_name=state.call.name,
        arguments=as_object(state.effective_arguments) or {},
        effect=state.effect,
        idempotency_key=state.idempotency_key,
        child=child,
    )
    run.usage_meter.begin([state.call.id])
    run.starting.append(task)
    return started_result(task.id, task.tool_name)


def has_answered(run: ActiveRun) -> bool:
    """Whether the log ends with an answer of this very run that asks for nothing more.

    So it does for a run that was woken and finds nothing new: it must not ask the model again. A summary
    that has been put behind the answer is nothing new.
    """
    if run.in_step:
        return False
    for entry in reversed(run.log):
        last = entry.message
        if last.role is not Role.SYSTEM:
            is_own = last.role is Role.ASSISTANT and last.run_id == run.record.id
            return is_own and not last.tool_calls
    return False
