"""Keep an artifact of a remote agent as a file of its run's thread. Equal artifacts of a tenant are one file.

A worker that has lost the run keeps nothing.
"""

from collections.abc import AsyncIterator

from app.commands.files.references import create_written
from app.commands.files.writing import NewFile, WrittenBytes, write_bytes
from app.commands.tool_owner import ToolOwner, locked_run
from app.domain.files.files import id_of_content
from app.domain.ids import FileId
from app.domain.threads.messages import WrittenFile
from app.events.transaction import EventTransactions
from app.storage.files import files
from app.storage.files.file_bytes import FileBytes


async def keep_artifact(
    store: FileBytes,
    outgoing: EventTransactions,
    owner: ToolOwner,
    new: NewFile,
    pieces: AsyncIterator[bytes],
    max_bytes: int,
) -> FileId:
    """Save the bytes, and let the run's thread refer to them."""

    async def add(written: WrittenBytes) -> FileId:
        async with outgoing.transaction() as transaction:
            record = await locked_run(transaction.connection, owner)
            connection = transaction.connection
            file_id = id_of_content(owner.tenant, written.sha256, written.media_type, new.name)
            file = WrittenFile(
                blob_id=written.key.id,
                name=new.name,
                media_type=written.media_type,
                size=written.size,
                sha256=written.sha256,
                created_by=record.started_by,
                created_at=transaction.now,
            )
            await create_written(connection, owner.tenant, file_id, file)
            await files.refer(connection, owner.tenant, owner.thread_id, [file_id])
            return file_id

    return await write_bytes(store, owner.tenant, new, pieces, max_bytes, add)
