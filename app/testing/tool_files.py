"""The files of a thread in memory: those that tools save, each once for its call, name and content."""

import hashlib
from collections.abc import AsyncIterator

from msgspec import Struct

from app.clock import new_id
from app.domain.errors import NotFound, OwnershipLost
from app.domain.events.tool_call_events import ArtifactSaved
from app.domain.files.checks import (
    checked_media_type,
    refuse_empty,
    refuse_too_large,
    refuse_too_many,
)
from app.domain.files.files import CHUNK_BYTES, DEFAULT_MAX_FILE_BYTES
from app.domain.files.signatures import SIGNATURE_BYTES
from app.domain.ids import CallId, FileId, RunId
from app.runtime.ports.tool_files import OpenFile
from app.testing.thread_rows import ThreadRows


class SavedFile(Struct, frozen=True, kw_only=True):
    """A file that a tool saved."""

    id: str
    name: str
    media_type: str
    data: bytes


class _KeptFile(Struct, frozen=True):
    run_id: RunId
    idempotency_key: str
    file: SavedFile


class MemoryFiles:
    """All files that the tools of a thread have saved."""

    def __init__(self, rows: ThreadRows) -> None:
        self._rows = rows
        self._kept: dict[str, _KeptFile] = {}

    def of_run(self, run_id: RunId) -> tuple[SavedFile, ...]:
        return tuple(one.file for one in self._kept.values() if one.run_id == run_id)

    def get(self, file_id: FileId) -> SavedFile | None:
        found = self._kept.get(file_id)
        return None if found is None else found.file

    def add(self, call_id: CallId, idempotency_key: str, file: SavedFile) -> FileId:
        """Add a file of the newest run, unless this call has saved the same one."""
        run_id = self._rows.record.id
        for known in self._kept.values():
            same = (known.file.name, known.file.data) == (file.name, file.data)
            if same and (known.run_id, known.idempotency_key) == (run_id, idempotency_key):
                return FileId(known.file.id)
        refuse_too_many(len(self.of_run(run_id)) + 1)
        self._kept[file.id] = _KeptFile(run_id, idempotency_key, file)
        self._rows.emit(
            ArtifactSaved(
                tool_call_id=call_id,
                file_id=file.id,
                name=file.name,
                media_type=file.media_type,
                size=len(file.data),
                sha256=hashlib.sha256(file.data).hexdigest(),
            )
        )
        return FileId(file.id)


class MemoryToolFiles(Struct, frozen=True):
    """What the tools of one attempt save and open. It saves nothing once another attempt owns the run."""

    rows: ThreadRows
    files: MemoryFiles
    attempt: int

    async def save(
        self,
        call_id: CallId,
        idempotency_key: str,
        name: str,
        pieces: AsyncIterator[bytes],
        media_type: str | None,
    ) -> FileId:
        data = bytearray()
        async for piece in pieces:
            refuse_too_large(len(data) + len(piece), DEFAULT_MAX_FILE_BYTES)
            data += piece
        refuse_empty(len(data))
        checked = checked_media_type(media_type, bytes(data[:SIGNATURE_BYTES]))
        if self.rows.record.attempt != self.attempt:
            raise OwnershipLost(self.rows.record.id)
        file = SavedFile(id=new_id(), name=name, media_type=checked, data=bytes(data))
        return self.files.add(call_id, idempotency_key, file)

    async def refer(self, file_id: FileId) -> OpenFile:
        return await self.open(file_id)

    async def open(self, file_id: FileId) -> OpenFile:
        file = self.files.get(file_id)
        if file is None:
            raise NotFound("file_not_found", f"No tool has saved a file {file_id}.")
        return OpenFile(
            id=file.id,
            name=file.name,
            media_type=file.media_type,
            size=len(file.data),
            sha256=hashlib.sha256(file.data).hexdigest(),
            pieces=lambda: _pieces(file.data),
        )


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(data), CHUNK_BYTES):
        yield data[begin : begin + CHUNK_BYTES]
