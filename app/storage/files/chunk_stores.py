"""Where the bytes of files are stored: the protocol, and its implementation by rows in Postgres."""

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

from app.domain.errors import BytesDeleted
from app.domain.files.files import CHUNK_BYTES
from app.storage.files import blobs
from app.storage.files.blobs import BlobKey
from app.storage.postgres.database import RawPool


class ChunkStore(Protocol):
    """Stores blobs in numbered chunks. A failure of the store raises `FilesUnavailable`."""

    @property
    def place(self) -> str:
        """The name of the store in the column `blobs.place`."""

    @property
    def chunk_bytes(self) -> int:
        """The size of each chunk but the last: a multiple of three, so that base64 can be made in pieces."""

    async def add(self, key: BlobKey, n: int, chunk: bytes) -> None:
        """Store the chunk number `n`, counted from 0."""

    def read(self, key: BlobKey, first: int, last: int) -> AsyncIterator[bytes]:
        """The bytes from `first` to `last`, both included. Deleted bytes raise `BytesDeleted`.

        From 0 on, the size of each piece but the last is a multiple of three.
        """

    async def remove(self, key: BlobKey) -> None:
        """Delete all chunks of a blob, also if none or only some are there."""


class PostgresChunks(Struct, frozen=True):
    """Chunks are rows. No connection is held between two of them."""

    pool: RawPool
    place: str = "pg"
    chunk_bytes: int = CHUNK_BYTES

    async def add(self, key: BlobKey, n: int, chunk: bytes) -> None:
        await blobs.add_chunk(self.pool, key, n, chunk)

    async def read(self, key: BlobKey, first: int, last: int) -> AsyncIterator[bytes]:
        for n in range(first // CHUNK_BYTES, last // CHUNK_BYTES + 1):
            chunk = await blobs.chunk(self.pool, key, n)
            if chunk is None:
                raise BytesDeleted
            begin = n * CHUNK_BYTES
            yield chunk[max(first - begin, 0) : last + 1 - begin]

    async def remove(self, key: BlobKey) -> None:
        """The chunks are deleted with the row of their blob."""
