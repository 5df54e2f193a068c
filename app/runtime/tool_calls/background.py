"""Starts background tasks, and checks whether the run's last answer is final."""

from app.clock import new_id
from app.domain.children.background_tasks import NewTask, started_result
from app.domain.children.child_runs import ChildWork
from app.domain.ids import TASK_PREFIX, TaskId
from app.domain.json_values import as_object
from app.domain.threads.messages import Role
from app.domain.tools.tool_calls import CallState, ToolResult
from app.runtime.active_run import ActiveRun


def begin_task(run: ActiveRun, state: CallState, child: ChildWork | None = None) -> ToolResult:
    """Make the call a background task, which starts with the commit of this result."""
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
    run.new_tasks.append(task)
    return started_result(task.id, task.tool_name)


def has_answered(run: ActiveRun) -> bool:
    """Whether the log ends with an answer of this run that has no tool calls.

    A run that was resumed and finds nothing new must not ask the model again. A summary behind the
    answer counts as nothing new.
    """
    if run.in_step:
        return False
    for entry in reversed(run.log):
        last = entry.message
        if last.role is not Role.SYSTEM:
            is_own = last.role is Role.ASSISTANT and last.run_id == run.record.id
            return is_own and not last.tool_calls
    return False
