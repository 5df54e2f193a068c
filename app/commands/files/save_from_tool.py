"""Save a file of a tool: it becomes an artifact of the run, and its thread refers to it.

A worker that has lost the run or the task saves nothing.
"""

from collections.abc import AsyncIterator

from app.commands.files.writing import NewFile, WrittenBytes, add_file, write_bytes
from app.commands.tool_owner import ToolOwner, locked_run
from app.domain.events.tool_call_events import ArtifactSaved
from app.domain.files.checks import refuse_too_many
from app.domain.files.files import StoredFile
from app.domain.ids import CallId, FileId
from app.domain.runs.runs import RunRecord
from app.events.transaction import EventTransactions, Transaction
from app.queries.files.reading import file_not_found
from app.storage.files import blobs, files, saved_files
from app.storage.files.file_bytes import FileBytes
from app.storage.files.saved_files import SavingCall


async def save_from_tool(
    store: FileBytes,
    outgoing: EventTransactions,
    owner: ToolOwner,
    call: SavingCall,
    new: NewFile,
    pieces: AsyncIterator[bytes],
    max_bytes: int,
) -> FileId:
    """Save the bytes as a file of this call. Equal bytes under the same name are one file of a call."""

    async def add(written: WrittenBytes) -> FileId:
        async with outgoing.transaction() as transaction:
            record = await locked_run(transaction.connection, owner)
            return await _add(transaction, record, call, new, written)

    return await write_bytes(store, owner.tenant, new, pieces, max_bytes, add)


async def refer_from_tool(outgoing: EventTransactions, owner: ToolOwner, file_id: FileId) -> None:
    """Let the run's thread refer to a file of the tenant; refuse one that was deleted meanwhile."""
    async with outgoing.transaction() as transaction:
        record = await locked_run(transaction.connection, owner)
        connection = transaction.connection
        if not await files.get_all(connection, record.tenant, [file_id], lock=True):
            raise file_not_found(file_id)
        await files.refer(connection, record.tenant, record.thread_id, [file_id])


async def _add(
    transaction: Transaction,
    record: RunRecord,
    call: SavingCall,
    new: NewFile,
    written: WrittenBytes,
) -> FileId:
    connection, tenant = transaction.connection, record.tenant
    blob_id = await blobs.complete(connection, written.key, written.sha256, written.size)
    known = await saved_files.find(connection, tenant, record.id, call, new.name, blob_id)
    if known is not None:
        return known
    number = await saved_files.next_number(connection, tenant, record.id)
    refuse_too_many(number)
    file = await add_file(
        connection,
        tenant,
        new,
        written,
        blob_id,
        created_by=record.started_by,
        created_at=transaction.now,
    )
    await files.refer(connection, tenant, record.thread_id, [file.id])
    await saved_files.add(connection, tenant, record.id, call, number, file.id)
    # Nothing follows the `run_finish` of a done run, which background tasks may outlive.
    if not record.is_done:
        transaction.emit(tenant, record.thread_id, record.id, _saved(file, call.call_id))
    return file.id


def _saved(file: StoredFile, call_id: CallId) -> ArtifactSaved:
    return ArtifactSaved(
        tool_call_id=call_id,
        file_id=file.id,
        name=file.name or "",
        media_type=file.media_type,
        size=file.size,
        sha256=file.sha256,
    )
