"""The bytes of files: new ones go to the configured store, and all are read from where they are."""

from collections.abc import AsyncIterator

from msgspec import Struct

from app.domain.errors import BytesDeleted, FilesUnavailable
from app.storage.files import blobs
from app.storage.files.blobs import BlobKey
from app.storage.files.chunk_stores import ChunkStore, PostgresChunks
from app.storage.postgres.database import RawPool


class FileBytes(Struct, frozen=True):
    """Reads and writes bytes. Without `remote`, new ones go to Postgres."""

    pool: RawPool
    remote: ChunkStore | None = None

    @property
    def _store(self) -> ChunkStore:
        return PostgresChunks(self.pool) if self.remote is None else self.remote

    @property
    def chunk_bytes(self) -> int:
        """The size of each chunk that `add` gets, but the last."""
        return self._store.chunk_bytes

    async def begin(self, key: BlobKey) -> None:
        """Begin an upload."""
        await blobs.begin(self.pool, key, self._store.place)

    async def add(self, key: BlobKey, n: int, chunk: bytes) -> None:
        if self.remote is not None:
            await blobs.keep(self.pool, key)
        await self._store.add(key, n, chunk)

    async def discard(self, key: BlobKey) -> None:
        """Delete an upload that broke off. Objects of a remote store are deleted by `FileObjectDeletion`."""
        await blobs.discard(self.pool, key)

    async def read(self, key: BlobKey, first: int, last: int) -> AsyncIterator[bytes]:
        """The bytes from `first` to `last`, both included."""
        place = await blobs.place_of(self.pool, key)
        if place is None:
            raise BytesDeleted
        async for piece in self._store_at(place).read(key, first, last):
            yield piece

    def _store_at(self, place: str) -> ChunkStore:
        if place == "pg":
            return PostgresChunks(self.pool)
        if self.remote is None or self.remote.place != place:
            raise FilesUnavailable(
                "The bytes of this file are in S3, and this server has no HOLDFAST_BLOBS. Set it to their bucket."
            )
        return self.remote
