"""The rows of files, and the threads that refer to them."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, exists, func, insert, literal, select, tuple_
from sqlalchemy.dialects.postgresql import insert as upsert

from app.domain.files.files import StoredFile
from app.domain.ids import FileId, Tenant, ThreadId
from app.domain.json_values import storable
from app.domain.slices import PageRequest, Slice
from app.storage.codec import Row
from app.storage.page_rows import page_of
from app.storage.postgres.database import Connection
from app.storage.tables import file_threads, files


def _file_of(row: Row) -> StoredFile:
    return StoredFile(
        id=FileId(row["id"]),
        blob_id=row["blob_id"],
        name=row["name"],
        media_type=row["media_type"],
        size=row["size"],
        sha256=row["sha256"],
        created_by=row["created_by"],
        created_at=row["created_at"],
    )


async def add(connection: Connection, tenant: Tenant, file: StoredFile) -> None:
    await connection.execute(insert(files).values(_values(tenant, file)))


def _values(tenant: Tenant, file: StoredFile) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "id": file.id,
        "blob_id": file.blob_id,
        "name": storable(file.name),
        "media_type": file.media_type,
        "size": file.size,
        "sha256": file.sha256,
        "created_by": file.created_by,
        "created_at": file.created_at,
    }


async def add_unless_known(connection: Connection, tenant: Tenant, file: StoredFile) -> None:
    """Add a file whose id follows from its content, and lock its row, also if it is known."""
    statement = upsert(files).values(_values(tenant, file))
    key = (files.c.tenant, files.c.id)
    await connection.execute(
        statement.on_conflict_do_update(index_elements=key, set_={"name": files.c.name})
    )


async def get(connection: Connection, tenant: Tenant, file_id: FileId) -> StoredFile | None:
    statement = select(files).where(files.c.tenant == tenant, files.c.id == file_id)
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else _file_of(row)


async def get_all(
    connection: Connection, tenant: Tenant, ids: Collection[FileId], *, lock: bool = False
) -> dict[FileId, StoredFile]:
    """The files with these ids. With `lock`, none of them is deleted before this transaction ends."""
    statement = select(files).where(files.c.tenant == tenant, files.c.id.in_(ids))
    if lock:
        statement = statement.order_by(files.c.id).with_for_update(read=True, key_share=True)
    rows = await connection.execute(statement)
    return {file.id: file for file in map(_file_of, rows)}


async def page(
    connection: Connection, tenant: Tenant, thread_id: ThreadId | None, requested: PageRequest
) -> Slice[StoredFile]:
    """A page of the tenant's files, or of those of a thread."""
    statement = select(files).where(files.c.tenant == tenant)
    if thread_id is not None:
        statement = statement.where(
            exists().where(
                file_threads.c.tenant == tenant,
                file_threads.c.thread_id == thread_id,
                file_threads.c.file_id == files.c.id,
            )
        )
    return await page_of(connection, statement, _file_of, requested)


async def remove(connection: Connection, tenant: Tenant, file_id: FileId) -> bool:
    """Delete a file; its bytes are deleted later. False if there is none."""
    statement = delete(files).where(files.c.tenant == tenant, files.c.id == file_id)
    return (await connection.execute(statement)).rowcount > 0


async def delete_unreferred(connection: Connection, older_than: float, limit: int) -> int:
    """Delete files of at least this age that no thread refers to. Their bytes are deleted later."""
    key = (files.c.tenant, files.c.id)
    is_used = exists().where(
        file_threads.c.tenant == files.c.tenant, file_threads.c.file_id == files.c.id
    )
    old = (
        select(*key)
        .where(files.c.created_at < func.now() - timedelta(seconds=older_than), ~is_used)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    found = [tuple(row) for row in await connection.execute(old)]
    if not found:
        return 0
    # Judged again under the lock: a thread may have begun to refer to a file before it was taken.
    statement = delete(files).where(tuple_(*key).in_(found), ~is_used)
    return (await connection.execute(statement)).rowcount


async def refer(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, ids: Collection[FileId]
) -> None:
    """Record that the thread refers to these files: its messages do, or its tools saved them."""
    values: list[dict[str, Any]] = [
        {"tenant": tenant, "thread_id": thread_id, "file_id": id_} for id_ in sorted(ids)
    ]
    await connection.execute(upsert(file_threads).values(values).on_conflict_do_nothing())


async def copy_references(
    connection: Connection, tenant: Tenant, origin: ThreadId, copy: ThreadId
) -> None:
    """Let a copy of a thread refer to the same files."""
    of_origin = select(
        file_threads.c.tenant, literal(copy, file_threads.c.thread_id.type), file_threads.c.file_id
    ).where(file_threads.c.tenant == tenant, file_threads.c.thread_id == origin)
    names = ["tenant", "thread_id", "file_id"]
    await connection.execute(insert(file_threads).from_select(names, of_origin))


async def remove_those_of(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> None:
    """Delete the files that only this thread refers to."""
    here = file_threads.alias("here")
    elsewhere = file_threads.alias("elsewhere")
    is_here = exists().where(
        here.c.tenant == tenant,
        here.c.thread_id == thread_id,
        here.c.file_id == files.c.id,
    )
    is_elsewhere = exists().where(
        elsewhere.c.tenant == tenant,
        elsewhere.c.thread_id != thread_id,
        elsewhere.c.file_id == files.c.id,
    )
    statement = delete(files).where(files.c.tenant == tenant, is_here, ~is_elsewhere)
    await connection.execute(statement)
