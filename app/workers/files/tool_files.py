"""The files that tools of a run or a background task save and open, and those of remote agents."""

from collections.abc import AsyncIterator

from msgspec import Struct

from app.commands.files.keep_artifact import keep_artifact
from app.commands.files.save_from_tool import refer_from_tool, save_from_tool
from app.commands.files.writing import NewFile
from app.commands.tool_owner import ToolOwner
from app.domain.files.files import StoredFile
from app.domain.ids import CallId, FileId, canonical_uuid
from app.events.transaction import EventTransactions
from app.queries.files.reading import bytes_of, file_not_found
from app.runtime.ports.tool_files import OpenFile
from app.storage.files import files
from app.storage.files.chunk_stores import ChunkStore
from app.storage.files.file_bytes import FileBytes
from app.storage.files.saved_files import SavingCall
from app.storage.postgres.database import Database


class StoredToolFiles(Struct, frozen=True):
    """Saving is fenced: a worker that has lost the run or the task raises `OwnershipLost`."""

    database: Database
    outgoing: EventTransactions
    owner: ToolOwner
    max_bytes: int
    chunks: ChunkStore | None = None

    @property
    def _store(self) -> FileBytes:
        return FileBytes(self.database.pool, self.chunks)

    async def save(
        self,
        call_id: CallId,
        idempotency_key: str,
        name: str,
        pieces: AsyncIterator[bytes],
        media_type: str | None,
    ) -> FileId:
        return await save_from_tool(
            self._store,
            self.outgoing,
            self.owner,
            SavingCall(call_id, idempotency_key),
            NewFile(name, media_type),
            pieces,
            self.max_bytes,
        )

    async def keep(
        self, name: str | None, pieces: AsyncIterator[bytes], media_type: str | None
    ) -> FileId:
        return await keep_artifact(
            self._store,
            self.outgoing,
            self.owner,
            NewFile(name, media_type),
            pieces,
            self.max_bytes,
        )

    async def refer(self, file_id: FileId) -> OpenFile:
        file = await self.open(file_id)
        await refer_from_tool(self.outgoing, self.owner, FileId(file.id))
        return file

    async def open(self, file_id: FileId) -> OpenFile:
        known = canonical_uuid(file_id)
        if known is None:
            raise file_not_found(file_id)
        async with self.database.reading_by_key() as connection:
            file = await files.get(connection, self.owner.tenant, FileId(known))
        if file is None:
            raise file_not_found(file_id)
        return self._opened(file)

    def _opened(self, file: StoredFile) -> OpenFile:
        store, tenant = self._store, self.owner.tenant
        return OpenFile(
            id=file.id,
            name=file.name,
            media_type=file.media_type,
            size=file.size,
            sha256=file.sha256,
            pieces=lambda: bytes_of(store, tenant, file, 0, file.size - 1),
        )
