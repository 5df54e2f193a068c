"""Write the bytes of a new file: they arrive in pieces, are hashed on the way and written in chunks.

No statement waits for the source of the bytes. What breaks off leaves nothing behind: what it has written is deleted
at once, or by retention if the process dies.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

from msgspec import Struct

from app.clock import new_id
from app.domain.files.checks import checked_media_type, refuse_empty, refuse_too_large
from app.domain.files.files import StoredFile
from app.domain.files.signatures import SIGNATURE_BYTES
from app.domain.ids import FileId, Tenant
from app.storage.files import files
from app.storage.files.blobs import BlobKey
from app.storage.files.file_bytes import FileBytes
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Connection

T = TypeVar("T")


class NewFile(Struct, frozen=True):
    """What a client or a tool says about its file. Without `media_type` the signature of the bytes decides."""

    name: str | None
    media_type: str | None


class WrittenBytes(Struct, frozen=True):
    """Bytes whose chunks are written. They belong to no file yet."""

    key: BlobKey
    sha256: str
    size: int
    media_type: str


async def add_file(
    connection: Connection,
    tenant: Tenant,
    new: NewFile,
    written: WrittenBytes,
    blob_id: str,
    *,
    created_by: str,
    created_at: datetime,
) -> StoredFile:
    """Insert the file of these bytes."""
    file = StoredFile(
        id=FileId(new_id()),
        blob_id=blob_id,
        name=new.name,
        media_type=written.media_type,
        size=written.size,
        sha256=written.sha256,
        created_by=created_by,
        created_at=created_at,
    )
    await files.add(connection, tenant, file)
    return file


async def write_bytes(
    store: FileBytes,
    tenant: Tenant,
    new: NewFile,
    pieces: AsyncIterator[bytes],
    max_bytes: int,
    commit: Callable[[WrittenBytes], Awaitable[T]],
) -> T:
    """Write the bytes, and return what `commit` makes of them. If anything fails, no bytes stay."""
    key = BlobKey(tenant, new_id())
    writer = _ChunkWriter(store, key, max_bytes)
    try:
        async for piece in pieces:
            await writer.write(piece)
        await writer.finish()
        media_type = checked_media_type(new.media_type, writer.beginning)
        return await commit(WrittenBytes(key, writer.sha256, writer.size, media_type))
    except BaseException:
        if writer.has_begun:
            # Retention deletes what stays. The first error is the one to report.
            with suppress(*DATABASE_UNAVAILABLE):
                await store.discard(key)
        raise


class _ChunkWriter:
    """Collects pieces of any size into chunks, and writes each when it is full."""

    def __init__(self, store: FileBytes, key: BlobKey, max_bytes: int) -> None:
        self._store, self._key, self._max_bytes = store, key, max_bytes
        self._chunk_bytes = store.chunk_bytes
        self._hash = hashlib.sha256()
        self._chunk = bytearray()
        self._chunks = 0
        self.size = 0
        self.beginning = b""
        self.has_begun = False

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    async def write(self, piece: bytes) -> None:
        self.size += len(piece)
        refuse_too_large(self.size, self._max_bytes)
        view = memoryview(piece)
        while view:
            room = self._chunk_bytes - len(self._chunk)
            self._chunk += view[:room]
            view = view[room:]
            if len(self._chunk) == self._chunk_bytes:
                await self._flush()

    async def finish(self) -> None:
        refuse_empty(self.size)
        if self._chunk:
            await self._flush()

    async def _flush(self) -> None:
        chunk, self._chunk = bytes(self._chunk), bytearray()
        self.beginning = self.beginning or chunk[:SIGNATURE_BYTES]
        self._hash.update(chunk)
        if not self.has_begun:
            self.has_begun = True
            await self._store.begin(self._key)
        await self._store.add(self._key, self._chunks, chunk)
        self._chunks += 1
