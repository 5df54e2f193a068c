"""Inputs that clients have sent: found, listed, changed while pending, and retracted.

A transaction that changes or consumes an input holds the thread's lock.
"""

from sqlalchemy import select, update

from app.domain.ids import InputId, RunId, Tenant, ThreadId
from app.domain.json_values import storable
from app.domain.slices import PageRequest, Slice
from app.domain.threads.inputs import Input, InputStatus
from app.domain.threads.messages import Visibility, message_to_json
from app.storage.codec import Row, queued_message_of
from app.storage.page_rows import page_of
from app.storage.postgres.database import Connection
from app.storage.tables import inputs
from app.storage.tables import runs as run_table


async def find(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, input_id: InputId
) -> Input | None:
    """An input that a client has sent. Under the thread's lock no run consumes it meanwhile."""
    statement = select(inputs).where(
        inputs.c.tenant == tenant,
        inputs.c.thread_id == thread_id,
        inputs.c.id == input_id,
        _is_from_outside,
    )
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else _input_of(row)


async def page(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    status: InputStatus,
    requested: PageRequest,
) -> Slice[Input]:
    """Consumed or retracted inputs of a thread by creation."""
    statement = select(inputs).where(
        inputs.c.tenant == tenant,
        inputs.c.thread_id == thread_id,
        inputs.c.status == status.value,
        _is_from_outside,
    )
    return await page_of(connection, statement, _input_of, requested)


async def waiting_page(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    requested: PageRequest,
) -> Slice[Input]:
    """Pending inputs of a thread in the order in which runs will read them: by `events_from` of the run,
    then by the input's position."""
    its_run = (run_table.c.tenant == inputs.c.tenant) & (run_table.c.id == inputs.c.run_id)
    statement = (
        select(inputs, run_table.c.events_from)
        .join_from(inputs, run_table, its_run)
        .where(
            inputs.c.tenant == tenant,
            inputs.c.thread_id == thread_id,
            inputs.c.status == InputStatus.PENDING.value,
            _is_from_outside,
        )
    )
    return await page_of(connection, statement, _waiting, requested, by=("events_from", "position"))


def _waiting(row: Row) -> Input:
    return _input_of(row, run_order=row["events_from"])


_is_from_outside = inputs.c.message["visibility"].astext.is_distinct_from(Visibility.INTERNAL.value)
"""Reports of a run's own tasks are internal: clients can neither list nor change them."""


def _input_of(row: Row, run_order: int = 0) -> Input:
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
        retracted_by=row["retracted_by"],
        run_order=run_order,
    )


async def rewrite(connection: Connection, tenant: Tenant, changed: Input) -> None:
    """Write the message and its revision; the caller holds the thread's lock."""
    await connection.execute(
        update(inputs)
        .where(inputs.c.tenant == tenant, inputs.c.id == changed.id)
        .values(message=storable(message_to_json(changed.message)), revision=changed.revision)
    )


async def retract(
    connection: Connection, tenant: Tenant, run_id: RunId, input_id: InputId, *, by: str
) -> None:
    """Mark a pending input as retracted, also for retries. The caller holds the run's lock."""
    await connection.execute(
        update(inputs)
        .where(inputs.c.tenant == tenant, inputs.c.id == input_id)
        .values(status=InputStatus.RETRACTED.value, retracted_by=by)
    )
    await connection.execute(
        update(run_table)
        .where(run_table.c.tenant == tenant, run_table.c.id == run_id)
        .values(unread_inputs=run_table.c.unread_inputs - 1)
    )
