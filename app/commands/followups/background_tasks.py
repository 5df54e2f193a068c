"""List, cancel and finish background tasks, and report their ends to their run.

A task's end and the input that reports it are one commit. A run that waits for its tasks gets a delivery in
the same commit; an executing run reads its inputs before it suspends or finishes.
"""

from collections.abc import Sequence

from app import telemetry
from app.clock import new_id
from app.context import ServiceContext
from app.domain.children.background_tasks import (
    CANCELLED,
    Task,
    TaskFilter,
    TaskOutcome,
    TaskStatus,
    event_message,
)
from app.domain.errors import NotFound
from app.domain.events.agent_events import AgentEvent
from app.domain.events.input_events import InputQueued
from app.domain.ids import InputId, MessageId, RunId, TaskId, Tenant
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord, Waiting, WaitingReason
from app.domain.slices import PageRequest, Slice
from app.events.transaction import EventTransactions, Transaction
from app.queries.records import locked_run, run_not_found
from app.storage.children import background_tasks, child_runs
from app.storage.children.background_tasks import ClaimedTask
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from app.storage.threads import inputs


def task_not_found(task_id: str) -> NotFound:
    return NotFound("task_not_found", f"This run has no task {task_id!r}.")


async def list_tasks(
    ctx: ServiceContext,
    principal: Principal,
    run_id: RunId,
    wanted: TaskFilter,
    requested: PageRequest,
) -> Slice[Task]:
    """A run's tasks."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        if await runs.get(connection, principal.tenant, run_id) is None:
            raise run_not_found(run_id)
        return await background_tasks.page(connection, principal.tenant, run_id, wanted, requested)


async def cancel_task(
    ctx: ServiceContext, principal: Principal, run_id: RunId, task_id: TaskId
) -> Task:
    """Cancel an open task and report that to its run; a finished task doesn't change."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.events.transaction() as transaction:
        record = await locked_run(transaction.connection, principal.tenant, run_id)
        task = await background_tasks.get(transaction.connection, principal.tenant, task_id)
        if task is None or task.run_id != run_id:
            raise task_not_found(task_id)
        if not task.status.is_final:
            task = await finish_task_in(transaction, record, task_id, CANCELLED) or task
    return task


async def finish_task(
    outgoing: EventTransactions, claimed: ClaimedTask, outcome: TaskOutcome
) -> bool:
    """Save the outcome of a claimed task; False if it had ended, or another worker owns it."""
    async with outgoing.transaction() as transaction:
        record = await runs.lock(transaction.connection, claimed.tenant, claimed.task.run_id)
        if record is None:
            return False
        task = await finish_task_in(
            transaction, record, claimed.task.id, outcome, attempt=claimed.task.attempt
        )
    return task is not None


async def emit_task_activity(
    outgoing: EventTransactions, claimed: ClaimedTask, activity: Sequence[AgentEvent]
) -> None:
    """Emit a task's activity on its run's stream, unless the task or the run has ended."""
    async with outgoing.transaction() as transaction:
        record = await runs.lock(transaction.connection, claimed.tenant, claimed.task.run_id)
        if record is None or record.is_done:
            return
        if await background_tasks.is_owned(transaction.connection, claimed.key):
            for event in activity:
                transaction.emit(record.tenant, record.thread_id, record.id, event)


async def finish_task_in(
    transaction: Transaction,
    record: RunRecord,
    task_id: TaskId,
    outcome: TaskOutcome,
    *,
    attempt: int | None = None,
) -> Task | None:
    """End a task, count that at its run and report it. The caller holds the run's lock."""
    connection, tenant = transaction.connection, record.tenant
    task = await background_tasks.end(
        connection,
        tenant,
        task_id,
        outcome,
        transaction.now,
        attempt=attempt,
        is_reported=not record.is_done,
    )
    if task is None:
        return None
    telemetry.tasks_ended.labels(task.tool_name, task.status.outcome).inc()
    if task.child is not None and task.status is TaskStatus.CANCELLED:
        await child_runs.cancel(connection, tenant, record.id, task.child.run_id)
    await runs.count_task_ended(connection, tenant, record.id)
    if not record.is_done:
        await _report_end(transaction, tenant, record, task)
    return task


async def _report_end(
    transaction: Transaction, tenant: Tenant, record: RunRecord, task: Task
) -> None:
    connection = transaction.connection
    input_id, message_id = InputId(new_id()), MessageId(new_id())
    message = event_message(task, message_id)
    await inputs.queue(connection, tenant, record.thread_id, record.id, [(input_id, message)])
    match record.state:
        case Waiting(WaitingReason.BACKGROUND_TASKS) if not record.is_paused:
            key = RunKey(tenant, record.thread_id, record.id, record.attempt)
            await deliveries.enqueue(connection, key)
        case _:
            pass
    transaction.emit(tenant, record.thread_id, record.id, InputQueued(input_id, message_id))
