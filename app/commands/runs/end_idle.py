"""End a run that no worker executes: record, calls, snapshot, `run_finish` and follow-ups in one commit.

Every command and periodic job that ends such a run calls `end_idle`: a cancel of a created, queued or
waiting run, an interrupt, a rollback, a thread cancel, an expired ticket, the end of a child's parent.
"""

from datetime import datetime

from msgspec import Struct

from app import telemetry
from app.backends.remote.endings import end_idle_remote_run
from app.backends.remote.run import is_remote
from app.domain.checkpoints import Checkpoint, CheckpointAnswer, CheckpointSaved
from app.domain.errors import ConfigurationError
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.runs.terminations import Termination, termination_to_json
from app.domain.threads.threads import Thread
from app.domain.tickets.tickets import TicketStatus
from app.events.transaction import Transaction
from app.runtime.ended.idle_end import IdleRun, end_idle_run
from app.storage import agents
from app.storage.checkpoints import single
from app.storage.postgres.database import Connection
from app.storage.runs import tool_calls
from app.storage.threads import messages, threads
from app.storage.tickets import tickets

_IDLE = frozenset({RunStatus.CREATED, RunStatus.WAITING})


async def end_idle(
    transaction: Transaction, thread: Thread, record: RunRecord, termination: Termination
) -> None:
    """End a run as its worker would. The caller has locked the rows of the thread and of the run."""
    connection, tenant = transaction.connection, record.tenant
    unsettled = await tickets.unsettled_of_run(connection, tenant, record.id)
    idle = IdleRun(
        record=record,
        next_seq=thread.next_message_seq,
        last_text=await messages.last_assistant_text(connection, record),
        thread_state=await threads.state(connection, tenant, record.thread_id),
        clock=_TransactionClock(transaction.now),
        calls=await tool_calls.of_run(connection, tenant, record.id),
        answered=[each.id for each in unsettled if each.status is not TicketStatus.OPEN],
    )
    store = _InTransaction(transaction)
    if await is_of_remote_agent(connection, record):
        await end_idle_remote_run(idle, store, termination)
    else:
        await end_idle_run(idle, store, termination)
    name = termination_to_json(termination)["type"]
    telemetry.runs_finished.labels(record.agent_id, name).inc()


async def is_of_remote_agent(connection: Connection, record: RunRecord) -> bool:
    """Whether the run's agent is remote: by the run's state, or by the agent's stored spec if it never
    executed.
    """
    if record.run_state:
        return is_remote(record)
    try:
        spec = await agents.find(connection, record.tenant, record.agent_id, record.agent_version)
    except ConfigurationError:
        return False
    return spec is not None and spec.endpoint is not None


class _InTransaction(Struct, frozen=True):
    """Writes an end with the rows and the events of a command's transaction."""

    transaction: Transaction

    async def commit(self, checkpoint: Checkpoint) -> CheckpointAnswer:
        transaction = self.transaction
        answer = await single.save(
            transaction.connection, checkpoint, at=transaction.now, expected=_IDLE
        )
        if not isinstance(answer, CheckpointSaved):
            raise RuntimeError(f"run {checkpoint.run_id} changed under its lock")
        events = [(pending.event, pending.step) for pending in checkpoint.pending_events]
        if answer.rolled_back is not None:
            events.insert(len(events) - 1, (answer.rolled_back, None))
        for event, step in events:
            transaction.emit(
                checkpoint.tenant, checkpoint.thread_id, checkpoint.run_id, event, step
            )
        return answer


class _TransactionClock(Struct, frozen=True):
    """A clock that returns the time of a transaction."""

    time: datetime

    def now(self) -> datetime:
        return self.time
