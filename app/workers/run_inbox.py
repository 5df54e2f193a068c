"""What an executing run has besides its events: its inbox, and its background tasks."""

from collections.abc import Sequence
from dataclasses import dataclass

from app import telemetry
from app.clock import sleep
from app.domain.children.background_tasks import CANCELLED, Task, TaskStatus
from app.domain.errors import DatabaseUnavailable, OwnershipLost
from app.domain.events.command_events import InputDelivered
from app.domain.ids import TaskId
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.threads.messages import LoggedMessage
from app.events.transaction import EventTransactions
from app.storage.children import background_tasks, child_runs
from app.storage.postgres.database import Connection, Database
from app.storage.runs import runs
from app.storage.threads import inputs

RETRY_INTERVAL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class RunInbox:
    """Under the attempt that executes the run: whoever has lost it writes nothing here."""

    database: Database
    outgoing: EventTransactions
    record: RunRecord

    async def enter_log(self, next_seq: int) -> Sequence[LoggedMessage]:
        """As patient as a commit: the run can't do without what may have entered already."""
        record = self.record
        while True:
            try:
                async with self.outgoing.transaction() as transaction:
                    entered = await inputs.enter_log(
                        transaction.connection,
                        record.tenant,
                        record.thread_id,
                        record.id,
                        record.attempt,
                        next_seq,
                        transaction.now,
                    )
                    if entered is None:
                        raise OwnershipLost(record.id)
                    for input_id, at in entered.delivered:
                        told = InputDelivered(input_id, at.message.id, at.seq)
                        transaction.emit(record.tenant, record.thread_id, record.id, told)
                return entered.log
            except DatabaseUnavailable:
                await sleep(RETRY_INTERVAL_SECONDS)

    async def cancel(self, task_id: TaskId) -> TaskStatus | None:
        """The run knows of this end from the call that asked for it, so nothing else tells it."""
        async with self.database.transaction() as connection:
            task = await self._mine(connection, task_id)
            if task is None or task.status.is_final:
                return None if task is None else task.status
            ended = await background_tasks.end(
                connection,
                self.record.tenant,
                task_id,
                CANCELLED,
                self.outgoing.now(),
                attempt=None,
                is_reported=True,
            )
            if ended is not None:
                await runs.count_task_ended(connection, self.record.tenant, self.record.id)
                telemetry.tasks_ended.labels(task.tool_name, ended.status.value).inc()
                if ended.child is not None:
                    await child_runs.cancel(
                        connection, self.record.tenant, self.record.id, ended.child.run_id
                    )
        return TaskStatus.CANCELLED

    async def send(self, task_id: TaskId, text: str, key: str) -> TaskStatus | None:
        async with self.database.transaction() as connection:
            task = await self._mine(connection, task_id)
            if task is not None:
                await background_tasks.send_message(
                    connection, self.record.tenant, task_id, text, key
                )
                if task.child is not None and not task.status.is_final:
                    await child_runs.forward_messages(
                        connection, self.record.tenant, self.record.id, task.child.run_id
                    )
        return None if task is None else task.status

    async def _mine(self, connection: Connection, task_id: TaskId) -> Task | None:
        """The run's own task, once the run is locked and still is ours."""
        record = await runs.lock(connection, self.record.tenant, self.record.id)
        if (
            record is None
            or record.attempt != self.record.attempt
            or record.status is not RunStatus.RUNNING
        ):
            raise OwnershipLost(self.record.id)
        task = await background_tasks.get(connection, self.record.tenant, task_id)
        return task if task is not None and task.run_id == self.record.id else None
