"""Steer: send messages to an open run, which reads them before its next step.

They are queued under the run's lock. The commit that would finish the run, or let it wait for its tasks,
locks the same row, so it can't miss them. A run that waits for its tasks gets a delivery; a run that waits
for a decision or is paused reads them when it resumes.
"""

from collections.abc import Sequence

from app.clock import new_id
from app.commands.files.references import refer_to_files
from app.domain.errors import Conflict, TooMany
from app.domain.events.input_events import InputQueued
from app.domain.ids import InputId
from app.domain.runs.runs import RunRecord, Waiting, WaitingReason
from app.domain.threads.messages import Message
from app.events.transaction import Transaction
from app.storage.queue import deliveries
from app.storage.runs.runs import RunKey
from app.storage.threads import inputs

MAX_UNREAD_INPUTS = 1000
"""Unread messages that one run may have."""


def reason_not_steerable(record: RunRecord) -> Conflict | None:
    """The refusal if a run reads no more messages, else None."""
    if record.is_done:
        return Conflict(
            "run_finished",
            'The run has ended. Send the messages with mode "queue", or start a run on its thread.',
            thread_id=record.thread_id,
        )
    if record.cancel_requested_at is not None:
        return Conflict(
            "not_steerable",
            'The run is being cancelled and reads nothing more. Send the messages with mode "queue".',
            thread_id=record.thread_id,
        )
    return None


async def steer(
    transaction: Transaction, record: RunRecord, messages: Sequence[Message]
) -> tuple[InputId, ...]:
    """Queue messages for a steerable run. The caller has locked the thread's and the run's row."""
    if record.unread_inputs + len(messages) > MAX_UNREAD_INPUTS:
        raise TooMany(
            "queue_full",
            f"{record.unread_inputs} messages wait for this run already. Retry when it has read some.",
        )
    connection, tenant = transaction.connection, record.tenant
    await refer_to_files(connection, tenant, record.thread_id, messages)
    waiting = [(InputId(new_id()), message) for message in messages]
    await inputs.queue(connection, tenant, record.thread_id, record.id, waiting)
    match record.state:
        case Waiting(WaitingReason.BACKGROUND_TASKS) if not record.is_paused:
            key = RunKey(tenant, record.thread_id, record.id, record.attempt)
            await deliveries.enqueue(connection, key)
        case _:
            pass
    for input_id, message in waiting:
        queued = InputQueued(input_id, message.id)
        transaction.emit(tenant, record.thread_id, record.id, queued)
    return tuple(input_id for input_id, _ in waiting)
