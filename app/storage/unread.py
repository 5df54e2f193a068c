"""What clients have sent to a thread: found, listed, changed where it still waits, and forgotten.

Whoever changes something holds the thread's lock, as does every run that takes something.
"""

from dataclasses import replace
from datetime import datetime

from sqlalchemy import delete, select, tuple_, update

from app.domain.ids import InputId, RunId, Tenant, ThreadId
from app.domain.inputs import Input, InputStatus
from app.domain.json_values import storable
from app.domain.messages import Visibility, message_to_json
from app.storage.codec import Row, queued_message_of
from app.storage.database import Connection
from app.storage.line import PLACE
from app.storage.tables import inputs
from app.storage.tables import runs as run_table


async def find(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, input_id: InputId
) -> Input | None:
    """What a client has sent to a thread. Under the thread's lock nobody takes it meanwhile."""
    statement = select(inputs).where(
        inputs.c.tenant == tenant,
        inputs.c.thread_id == thread_id,
        inputs.c.id == input_id,
        _is_from_outside,
    )
    row = (await connection.execute(statement)).mappings().one_or_none()
    return None if row is None else _input_of(row)


async def page(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    status: InputStatus,
    *,
    after: tuple[datetime, InputId] | None,
    limit: int,
) -> list[Input]:
    """What clients have sent to a thread and waits no more, oldest first, behind a place in that order."""
    statement = select(inputs).where(
        inputs.c.tenant == tenant,
        inputs.c.thread_id == thread_id,
        inputs.c.status == status.value,
        _is_from_outside,
    )
    if after is not None:
        statement = statement.where(tuple_(inputs.c.created_at, inputs.c.id) > after)
    statement = statement.order_by(inputs.c.created_at, inputs.c.id).limit(limit)
    return [_input_of(row) for row in (await connection.execute(statement)).mappings()]


async def waiting(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    *,
    after: tuple[int, int] = (0, 0),
    limit: int | None = None,
) -> list[Input]:
    """What clients have sent to a thread and no run has taken, in the order in which it will be read:
    by the places of the runs, and for each run by its own positions."""
    place = PLACE.label("place")
    statement = (
        select(inputs, place)
        .join(
            run_table,
            (run_table.c.tenant == inputs.c.tenant) & (run_table.c.id == inputs.c.run_id),
        )
        .where(
            inputs.c.tenant == tenant,
            inputs.c.thread_id == thread_id,
            inputs.c.status == InputStatus.PENDING.value,
            _is_from_outside,
            tuple_(PLACE, inputs.c.position) > after,
        )
        .order_by(place, inputs.c.position)
        .limit(limit)
    )
    rows = await connection.execute(statement)
    return [replace(_input_of(row), place=row["place"]) for row in rows.mappings()]


async def move(connection: Connection, tenant: Tenant, moved: Input) -> None:
    """Write a message's position and revision; the caller holds the thread's lock."""
    await connection.execute(
        update(inputs)
        .where(inputs.c.tenant == tenant, inputs.c.id == moved.id)
        .values(position=moved.position, revision=moved.revision)
    )


_is_from_outside = inputs.c.message["visibility"].astext.is_distinct_from(Visibility.INTERNAL.value)
"""What a run is told by its own tasks is nobody's to take back."""


def _input_of(row: Row) -> Input:
    return Input(
        id=InputId(row["id"]),
        thread_id=ThreadId(row["thread_id"]),
        run_id=RunId(row["run_id"]),
        position=row["position"],
        message=queued_message_of(row["message"]),
        status=InputStatus(row["status"]),
        revision=row["revision"],
        created_at=row["created_at"],
        consumed_seq=row["consumed_seq"],
    )


async def rewrite(connection: Connection, tenant: Tenant, changed: Input) -> None:
    """Write the message and its revision; the caller holds the thread's lock."""
    await connection.execute(
        update(inputs)
        .where(inputs.c.tenant == tenant, inputs.c.id == changed.id)
        .values(message=storable(message_to_json(changed.message)), revision=changed.revision)
    )


async def remove(connection: Connection, tenant: Tenant, run_id: RunId, input_id: InputId) -> None:
    """Forget a message that waits for a run, also for whatever runs in its place later; the caller holds
    the run's lock."""
    await connection.execute(
        delete(inputs).where(inputs.c.tenant == tenant, inputs.c.id == input_id)
    )
    await connection.execute(
        update(run_table)
        .where(run_table.c.tenant == tenant, run_table.c.id == run_id)
        .values(unread_inputs=run_table.c.unread_inputs - 1)
    )
