"""The files of a run's messages: read from the database, and kept in memory for the next request."""

import base64
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from app.clock import sleep
from app.domain.errors import BytesDeleted, FilesUnavailable
from app.domain.files.files import DEFAULT_MAX_INLINE_BYTES, StoredFile
from app.domain.ids import FileId, Tenant
from app.runtime.ports.files import LoadedFile
from app.storage.files import files
from app.storage.files.blobs import BlobKey
from app.storage.files.chunk_stores import ChunkStore
from app.storage.files.file_bytes import FileBytes
from app.storage.postgres.database import Database

DEFAULT_CACHE_BYTES = 64_000_000
RETRY_INTERVAL_SECONDS = 1.0


class FileCache:
    """Bytes of files as base64, by tenant and hash. The file that was used longest ago is removed first."""

    def __init__(self, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[Tenant, str], str] = OrderedDict()

    def get(self, tenant: Tenant, sha256: str) -> str | None:
        found = self._kept.get((tenant, sha256))
        if found is not None:
            self._kept.move_to_end((tenant, sha256))
        return found

    def put(self, tenant: Tenant, sha256: str, data: str) -> None:
        if len(data) > self._max_bytes or (tenant, sha256) in self._kept:
            return
        self._kept[tenant, sha256] = data
        self._bytes += len(data)
        while self._bytes > self._max_bytes:
            _, removed = self._kept.popitem(last=False)
            self._bytes -= len(removed)


class RunFiles(Struct, frozen=True):
    """Reads the files of one tenant."""

    database: Database
    cache: FileCache
    tenant: Tenant
    max_inline_bytes: int = DEFAULT_MAX_INLINE_BYTES
    chunks: ChunkStore | None = None

    async def load(self, file_ids: Sequence[FileId]) -> Mapping[FileId, LoadedFile]:
        async with self.database.reading() as connection:
            found = await files.get_all(connection, self.tenant, file_ids)
        loaded: dict[FileId, LoadedFile] = {}
        left = self.max_inline_bytes
        for file_id in file_ids:
            file = found.get(file_id)
            if file is None or file.size > left:
                continue
            data = await self._base64(file)
            if data is not None:
                left -= file.size
                loaded[file_id] = LoadedFile(file.media_type, data, file.name)
        return loaded

    async def _base64(self, file: StoredFile) -> str | None:
        """The bytes as base64; None if they are deleted meanwhile. An outage of their store is waited for."""
        data = self.cache.get(self.tenant, file.sha256)
        while data is None:
            try:
                data = await self._read(file)
            except BytesDeleted:
                return None
            except FilesUnavailable:
                await sleep(RETRY_INTERVAL_SECONDS)
        self.cache.put(self.tenant, file.sha256, data)
        return data

    async def _read(self, file: StoredFile) -> str:
        """Each piece is encoded by itself: its size is a multiple of three."""
        store = FileBytes(self.database.pool, self.chunks)
        pieces = store.read(BlobKey(self.tenant, file.blob_id), 0, file.size - 1)
        return "".join([base64.b64encode(piece).decode() async for piece in pieces])
