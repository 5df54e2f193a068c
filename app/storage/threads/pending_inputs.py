"""What clients have sent to a thread: found, listed, changed where it still waits, and forgotten.

Whoever changes something holds the thread's lock, as does every run that takes something.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Select, Text, cast, delete, func, select, tuple_, update
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from app.domain.ids import InputId, RunId, Tenant, ThreadId
from app.domain.json_values import storable
from app.domain.slices import Slice
from app.domain.threads.inputs import Input, InputStatus
from app.domain.threads.messages import Visibility, message_to_json
from app.storage.codec import Row, queued_message_of
from app.storage.page_rows import page_rows
from app.storage.postgres.database import Connection
from app.storage.runs.thread_queue import PLACE
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
) -> Slice[Input]:
    """What clients have sent to a thread and waits no more, oldest first, behind a place in that order."""
    statement = select(inputs).where(
        inputs.c.tenant == tenant,
        inputs.c.thread_id == thread_id,
        inputs.c.status == status.value,
        _is_from_outside,
    )
    if after is not None:
        statement = statement.where(tuple_(inputs.c.created_at, inputs.c.id) > after)
    return await page_rows(
        connection, statement, _input_of, by=("created_at", "id"), descending=False, limit=limit
    )


async def pending(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> list[Input]:
    """All that `waiting_page` lists, each message without its content, which may be large."""
    without_content = func.jsonb_set(
        inputs.c.message, cast(["content"], ARRAY(Text)), cast([], JSONB), type_=JSONB
    )
    others = [column for column in inputs.c if column.name != "message"]
    statement = _waiting(tenant, thread_id, *others, without_content.label("message"))
    rows = await connection.execute(statement.order_by(PLACE, inputs.c.position))
    return [_placed(row) for row in rows.mappings()]


async def waiting_page(
    connection: Connection,
    tenant: Tenant,
    thread_id: ThreadId,
    *,
    after: tuple[int, int],
    limit: int,
) -> Slice[Input]:
    """What clients have sent to a thread and no run has taken, in the order in which it will be read:
    by the places of the runs, and for each run by its own positions."""
    statement = _waiting(tenant, thread_id, inputs).where(tuple_(PLACE, inputs.c.position) > after)
    return await page_rows(
        connection, statement, _placed, by=("place", "position"), descending=False, limit=limit
    )


def _waiting(tenant: Tenant, thread_id: ThreadId, *columns: Any) -> Select[Any]:
    its_run = (run_table.c.tenant == inputs.c.tenant) & (run_table.c.id == inputs.c.run_id)
    return (
        select(*columns, PLACE.label("place"))
        .join_from(inputs, run_table, its_run)
        .where(
            inputs.c.tenant == tenant,
            inputs.c.thread_id == thread_id,
            inputs.c.status == InputStatus.PENDING.value,
            _is_from_outside,
        )
    )


def _placed(row: Row) -> Input:
    return replace(_input_of(row), place=row["place"])


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
