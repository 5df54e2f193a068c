"""Inputs: messages that wait for a run. They enter the log when it is claimed, or between its steps.

A transaction that queues inputs holds the run's lock and counts them in the run's row. So a checkpoint that
locks this row sees all of them.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from sqlalchemy import func, insert, select, update

from app.domain.ids import InputId, RunId, Tenant, ThreadId
from app.domain.json_values import storable
from app.domain.runs.runs import RunStatus
from app.domain.threads.inputs import InputStatus
from app.domain.threads.messages import LoggedMessage, Message, message_to_json
from app.storage.codec import queued_message_of
from app.storage.postgres.database import Connection
from app.storage.runs import runs
from app.storage.tables import inputs
from app.storage.tables import runs as run_table
from app.storage.threads import messages, threads


async def queue(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    run_id: RunId,
    waiting: Sequence[tuple[InputId, Message]],
) -> None:
    """Append messages to a run's pending inputs, in order. The caller holds the run's lock."""
    of_run = (inputs.c.tenant == tenant) & (inputs.c.run_id == run_id)
    pending = of_run & (inputs.c.status == InputStatus.PENDING.value)
    last_statement = select(func.coalesce(func.max(inputs.c.position), 0)).where(pending)
    last_position: int = (await connection.execute(last_statement)).scalar_one()
    await connection.execute_many(
        # The time of the statement: transactions that wait for the lock get times in the order of the lock.
        insert(inputs).values(created_at=func.clock_timestamp()),
        [
            {
                "tenant": tenant,
                "id": input_id,
                "thread_id": thread_id,
                "run_id": run_id,
                "position": position,
                "message": storable(message_to_json(message)),
            }
            for position, (input_id, message) in enumerate(waiting, last_position + 1)
        ],
    )
    await connection.execute(
        update(run_table)
        .where(run_table.c.tenant == tenant, run_table.c.id == run_id)
        .values(unread_inputs=run_table.c.unread_inputs + len(waiting))
    )


class Entered(Struct, frozen=True):
    """New messages of a log, and those of them that were pending inputs."""

    log: list[LoggedMessage]
    delivered: list[tuple[InputId, LoggedMessage]]


async def enter_log(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    run_id: RunId,
    attempt: int,
    next_seq: int,
    at: datetime,
) -> Entered | None:
    """Append an executing run's pending inputs to its thread's log, each once and in order.

    Returns the log from `next_seq` on, the end that the owner knows. This includes messages of a commit whose
    reply was lost. None, and nothing written, if the run has another attempt or status.
    """
    thread = await threads.lock(connection, tenant, thread_id)
    record = await runs.lock(connection, tenant, run_id)
    if (
        thread is None
        or record is None
        or record.attempt != attempt
        or record.status is not RunStatus.RUNNING
    ):
        return None
    waiting = await _pending(connection, tenant, run_id)
    first = thread.next_message_seq
    await messages.append(connection, tenant, thread_id, first, [message for _, message in waiting])
    for seq, (input_id, _) in enumerate(waiting, first):
        await connection.execute(
            update(inputs)
            .where(inputs.c.tenant == tenant, inputs.c.id == input_id)
            .values(status=InputStatus.CONSUMED.value, consumed_seq=seq)
        )
    if waiting:
        after = {"next_message_seq": first + len(waiting), "updated_at": at}
        await threads.change(connection, tenant, thread_id, after)
        await connection.execute(
            update(run_table)
            .where(run_table.c.tenant == tenant, run_table.c.id == run_id)
            .values(unread_inputs=run_table.c.unread_inputs - len(waiting))
        )
    delivered = [
        (input_id, LoggedMessage(seq, message))
        for seq, (input_id, message) in enumerate(waiting, first)
    ]
    return Entered(await messages.since(connection, tenant, thread_id, next_seq), delivered)


async def retract(connection: Connection, tenant: Tenant, run_id: RunId) -> None:
    """Retract the pending inputs of a run that ends. The caller writes the run's row."""
    await connection.execute(
        update(inputs)
        .where(
            inputs.c.tenant == tenant,
            inputs.c.run_id == run_id,
            inputs.c.status == InputStatus.PENDING.value,
        )
        .values(status=InputStatus.RETRACTED.value)
    )


async def retracted(connection: Connection, tenant: Tenant, run_id: RunId) -> list[Message]:
    """The messages that a run ended without reading, in order. Those that a client retracted aren't among them."""
    statement = (
        select(inputs.c.message)
        .where(
            inputs.c.tenant == tenant,
            inputs.c.run_id == run_id,
            inputs.c.status == InputStatus.RETRACTED.value,
            inputs.c.retracted_by.is_(None),
        )
        .order_by(inputs.c.position)
    )
    return [queued_message_of(row) for row in await connection.scalars(statement)]


async def _pending(
    connection: Connection, tenant: Tenant, run_id: RunId
) -> list[tuple[InputId, Message]]:
    statement = (
        select(inputs.c.id, inputs.c.message)
        .where(
            inputs.c.tenant == tenant,
            inputs.c.run_id == run_id,
            inputs.c.status == InputStatus.PENDING.value,
        )
        .order_by(inputs.c.position)
        .with_for_update(key_share=True)
    )
    rows = await connection.execute(statement)
    return [(InputId(row.id), queued_message_of(row.message)) for row in rows]
