"""The files that tools have saved, by run and call. The caller holds the lock of the run."""

from msgspec import Struct
from sqlalchemy import func, insert, select

from app.domain.ids import CallId, FileId, RunId, Tenant
from app.domain.json_values import storable
from app.storage.postgres.database import Connection
from app.storage.tables import files, saved_files


class SavingCall(Struct, frozen=True):
    """The call that saves a file. Its key is the same for every execution of the call."""

    call_id: CallId
    idempotency_key: str


async def find(
    connection: Connection,
    tenant: Tenant,
    run_id: RunId,
    call: SavingCall,
    name: str | None,
    blob_id: str,
) -> FileId | None:
    """The file that this call has already saved under this name with these bytes."""
    statement = (
        select(files.c.id)
        .join_from(
            saved_files,
            files,
            (files.c.tenant == saved_files.c.tenant) & (files.c.id == saved_files.c.file_id),
        )
        .where(
            saved_files.c.tenant == tenant,
            saved_files.c.run_id == run_id,
            saved_files.c.idempotency_key == storable(call.idempotency_key),
            files.c.blob_id == blob_id,
            files.c.name == storable(name),
        )
        .order_by(saved_files.c.number)
        .limit(1)
    )
    found = await connection.scalar(statement)
    return None if found is None else FileId(found)


async def next_number(connection: Connection, tenant: Tenant, run_id: RunId) -> int:
    """The number of the run's next file, from 1."""
    statement = select(func.coalesce(func.max(saved_files.c.number), 0) + 1).where(
        saved_files.c.tenant == tenant, saved_files.c.run_id == run_id
    )
    number: int = (await connection.execute(statement)).scalar_one()
    return number


async def add(
    connection: Connection,
    tenant: Tenant,
    run_id: RunId,
    call: SavingCall,
    number: int,
    file_id: FileId,
) -> None:
    await connection.execute(
        insert(saved_files).values(
            tenant=tenant,
            run_id=run_id,
            number=number,
            file_id=file_id,
            call_id=storable(call.call_id),
            idempotency_key=storable(call.idempotency_key),
        )
    )
