"""Steer: messages for a run that is there already, which sees them at the next border of its steps.

They are queued under the run's lock, and the commit that would end the run by itself or let it wait for
its tasks looks at the same row: neither overlooks them. A run that waits for its tasks is woken; one
that waits for people, or is paused, sees them when it goes on.
"""

from collections.abc import Sequence

from app.clock import new_id
from app.domain.errors import Conflict, TooMany
from app.domain.events.command_events import InputQueued
from app.domain.ids import InputId
from app.domain.runs.runs import RunRecord, Waiting, WaitingReason
from app.domain.threads.messages import Message
from app.events.transaction import Transaction
from app.storage.queue import deliveries
from app.storage.runs.runs import RunKey
from app.storage.threads import inputs

MAX_UNREAD_INPUTS = 1000
"""Messages that may wait for one run."""


def reason_not_steerable(record: RunRecord) -> Conflict | None:
    """Why a run takes no more messages, if it doesn't."""
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
    """Put messages before a run without an obstacle; the caller has locked its thread and it."""
    if record.unread_inputs + len(messages) > MAX_UNREAD_INPUTS:
        raise TooMany(
            "queue_full",
            f"{record.unread_inputs} messages wait for this run already; try again when it has read some.",
        )
    connection, tenant = transaction.connection, record.tenant
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
