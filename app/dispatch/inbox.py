"""What an executing run has besides its events: its inbox, and its background tasks."""

from collections.abc import Sequence
from dataclasses import dataclass

from app import telemetry
from app.clock import pause
from app.domain.control_events import InputDelivered
from app.domain.errors import DatabaseAway, OwnershipLost
from app.domain.ids import TaskId
from app.domain.messages import LoggedMessage
from app.domain.runs import RunRecord, RunStatus
from app.domain.tasks import CANCELLED, Task, TaskStatus
from app.events.outgoing import Outgoing
from app.storage import children, inputs, runs, tasks
from app.storage.database import Connection, Database

LOOK_AGAIN = 0.25


@dataclass(frozen=True, slots=True)
class RunInbox:
    """Under the attempt that executes the run: whoever has lost it writes nothing here."""

    database: Database
    outgoing: Outgoing
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
                        transaction.say(record.tenant, record.thread_id, record.id, told)
                return entered.log
            except DatabaseAway:
                await pause(LOOK_AGAIN)

    async def cancel(self, task_id: TaskId) -> TaskStatus | None:
        """The run knows of this end from the call that asked for it, so nothing else tells it."""
        async with self.database.transaction() as connection:
            task = await self._mine(connection, task_id)
            if task is None or task.status.is_final:
                return None if task is None else task.status
            ended = await tasks.end(
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
                    await children.cancel(
                        connection, self.record.tenant, self.record.id, ended.child.run_id
                    )
        return TaskStatus.CANCELLED

    async def send(self, task_id: TaskId, text: str, key: str) -> TaskStatus | None:
        async with self.database.transaction() as connection:
            task = await self._mine(connection, task_id)
            if task is not None:
                await tasks.send(connection, self.record.tenant, task_id, text, key)
                if task.child is not None and not task.status.is_final:
                    await children.pass_on(
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
        task = await tasks.get(connection, self.record.tenant, task_id)
        return task if task is not None and task.run_id == self.record.id else None
