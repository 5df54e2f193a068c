"""Files: one, a page of them, and their bytes."""

from collections.abc import AsyncIterator

from app.context import ServiceContext
from app.domain.errors import BytesDeleted, NotFound
from app.domain.files.files import StoredFile
from app.domain.ids import FileId, Tenant, ThreadId
from app.domain.principals import Principal, Scope
from app.domain.slices import PageRequest, Slice
from app.queries.records import found_thread
from app.storage.files import files
from app.storage.files.blobs import BlobKey
from app.storage.files.file_bytes import FileBytes


def file_not_found(file_id: FileId) -> NotFound:
    return NotFound("file_not_found", f"There is no file {file_id}. Upload it with POST /v1/files.")


async def read_file(ctx: ServiceContext, principal: Principal, file_id: FileId) -> StoredFile:
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading_by_key() as connection:
        found = await files.get(connection, principal.tenant, file_id)
    if found is None:
        raise file_not_found(file_id)
    return found


async def list_files(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId | None,
    requested: PageRequest,
) -> Slice[StoredFile]:
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        if thread_id is not None:
            await found_thread(connection, principal.tenant, thread_id)
        return await files.page(connection, principal.tenant, thread_id, requested)


async def bytes_of(
    store: FileBytes, tenant: Tenant, file: StoredFile, first: int, last: int
) -> AsyncIterator[bytes]:
    """The bytes from `first` to `last`, both included, in pieces. No connection is held between two pieces."""
    try:
        async for piece in store.read(BlobKey(tenant, file.blob_id), first, last):
            yield piece
    except BytesDeleted as error:
        raise file_not_found(file.id) from error
