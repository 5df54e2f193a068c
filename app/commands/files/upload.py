"""Upload a file. An upload that breaks off leaves nothing behind."""

from collections.abc import AsyncIterator

from app.commands.files.writing import NewFile, WrittenBytes, add_file, write_bytes
from app.context import ServiceContext
from app.domain.files.files import StoredFile
from app.domain.principals import Principal, Scope
from app.storage.files import blobs


async def upload(
    ctx: ServiceContext, principal: Principal, new: NewFile, pieces: AsyncIterator[bytes]
) -> StoredFile:
    """Store the bytes as a new file. The same bytes of a tenant are stored once."""
    principal.require(Scope.RUNS_WRITE)

    async def add(written: WrittenBytes) -> StoredFile:
        async with ctx.database.transaction() as connection:
            blob_id = await blobs.complete(connection, written.key, written.sha256, written.size)
            return await add_file(
                connection,
                principal.tenant,
                new,
                written,
                blob_id,
                created_by=principal.subject,
                created_at=ctx.clock.now(),
            )

    return await write_bytes(
        ctx.file_bytes, principal.tenant, new, pieces, ctx.limits.file_bytes, add
    )
