"""Inputs: messages that wait until their run is claimed."""

from collections.abc import Sequence

from sqlalchemy import insert, select, update

from app.clock import new_id
from app.domain.ids import InputId, RunId, Tenant, ThreadId
from app.domain.inputs import InputStatus
from app.domain.json_values import storable
from app.domain.messages import Message, message_to_json
from app.storage.database import Connection
from app.storage.tables import inputs


async def retract(connection: Connection, tenant: Tenant, run_id: RunId) -> None:
    """The run will never take what still waits for it."""
    await connection.execute(
        update(inputs)
        .where(
            inputs.c.tenant == tenant,
            inputs.c.run_id == run_id,
            inputs.c.status == InputStatus.PENDING.value,
        )
        .values(status=InputStatus.RETRACTED.value)
    )


async def queue_again(connection: Connection, tenant: Tenant, *, of: RunId, for_: RunId) -> None:
    """Let a run have what was retracted from another one, which never took anything."""
    statement = (
        select(inputs.c.thread_id, inputs.c.position, inputs.c.message)
        .where(
            inputs.c.tenant == tenant,
            inputs.c.run_id == of,
            inputs.c.status == InputStatus.RETRACTED.value,
        )
        .order_by(inputs.c.position)
    )
    again = [
        {"tenant": tenant, "id": new_id(), "run_id": for_, **row}
        for row in (await connection.execute(statement)).mappings()
    ]
    if again:
        await connection.execute(insert(inputs), again)


async def queue(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    run_id: RunId,
    waiting: Sequence[tuple[InputId, Message]],
) -> None:
    """Keep messages in their order for a run that can't take them yet."""
    await connection.execute(
        insert(inputs),
        [
            {
                "tenant": tenant,
                "id": input_id,
                "thread_id": thread_id,
                "run_id": run_id,
                "position": position,
                "message": storable(message_to_json(message)),
            }
            for position, (input_id, message) in enumerate(waiting, 1)
        ],
    )
