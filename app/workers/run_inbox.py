"""The inbox and the background tasks of an executing run."""

from collections.abc import Sequence

from msgspec import Struct

from app import telemetry
from app.domain.children.background_tasks import CANCELLED, Task, TaskStatus
from app.domain.errors import OwnershipLost
from app.domain.events.input_events import InputDelivered
from app.domain.ids import TaskId
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.threads.messages import LoggedMessage
from app.events.transaction import EventTransactions
from app.storage.children import background_tasks, child_runs
from app.storage.postgres.database import Connection, Database
from app.storage.postgres.retrying import retry_while_unavailable
from app.storage.runs import runs
from app.storage.threads import inputs


class RunInbox(Struct, frozen=True):
    """Each write is fenced by the run's attempt: a worker that lost the run raises `OwnershipLost`."""

    database: Database
    outgoing: EventTransactions
    record: RunRecord

    async def enter_log(self, next_seq: int) -> Sequence[LoggedMessage]:
        """Move unread inputs into the message log. Retries during an outage: a commit of unknown outcome
        may have moved some of them already."""
        return await retry_while_unavailable(lambda: self._enter_log(next_seq))

    async def _enter_log(self, next_seq: int) -> Sequence[LoggedMessage]:
        record = self.record
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
                event = InputDelivered(input_id, at.message.id, at.seq)
                transaction.emit(record.tenant, record.thread_id, record.id, event)
        return entered.log

    async def cancel(self, task_id: TaskId) -> TaskStatus | None:
        """Cancel a task of this run. No other report is sent, because the call reports the end."""
        async with self.database.transaction() as connection:
            task = await self._own_task(connection, task_id)
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
                telemetry.tasks_ended.labels(task.tool_name, ended.status.outcome).inc()
                if ended.child is not None:
                    await child_runs.cancel(
                        connection, self.record.tenant, self.record.id, ended.child.run_id
                    )
        return TaskStatus.CANCELLED

    async def send(self, task_id: TaskId, text: str, key: str) -> TaskStatus | None:
        async with self.database.transaction() as connection:
            task = await self._own_task(connection, task_id)
            if task is not None:
                await background_tasks.send_message(
                    connection, self.record.tenant, task_id, text, key
                )
                if task.child is not None and not task.status.is_final:
                    await child_runs.forward_messages(
                        connection, self.record.tenant, self.record.id, task.child.run_id
                    )
        return None if task is None else task.status

    async def _own_task(self, connection: Connection, task_id: TaskId) -> Task | None:
        """Lock the run, check that this attempt still owns it, and return its task."""
        record = await runs.lock(connection, self.record.tenant, self.record.id)
        if (
            record is None
            or record.attempt != self.record.attempt
            or record.status is not RunStatus.RUNNING
        ):
            raise OwnershipLost(self.record.id)
        task = await background_tasks.get(connection, self.record.tenant, task_id)
        return task if task is not None and task.run_id == self.record.id else None
