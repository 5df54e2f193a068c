"""The bytes of files as objects in an S3 bucket. The only module that imports the S3 library, which is an extra.

The key of an object is PREFIX/TENANT/BLOB/N: a blob has one object for each 4 MB. So an upload needs no multipart
upload, which a crash would leave behind unseen, and no copy to a key that is known only at the end. A new upload of
the same bytes has another key, which keeps the deletion of the old ones apart from it.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta

import structlog
from obstore.exceptions import BaseError
from obstore.store import S3Store

from app.clock import new_id
from app.domain.errors import BytesDeleted, FilesUnavailable
from app.domain.files.files import CHUNK_BYTES
from app.domain.ids import Tenant
from app.storage.files.blobs import BlobKey

OBJECT_BYTES = 16 * CHUNK_BYTES
READ_BYTES = 4 * CHUNK_BYTES
"""Of one range request. It divides `OBJECT_BYTES`, and is a multiple of three."""
REQUEST_TIMEOUT = timedelta(seconds=30)
CONNECT_TIMEOUT = timedelta(seconds=5)
RETRY_TIMEOUT = timedelta(seconds=10)

_CHECKS = Tenant("_checks")
"""No tenant has this name: theirs begin with a letter or digit."""

log = structlog.get_logger(__name__)


class S3Chunks:
    """Credentials, region and endpoint come from the usual AWS environment variables."""

    place = "s3"
    chunk_bytes = OBJECT_BYTES

    def __init__(self, bucket: str, prefix: str | None, *, allow_http: bool, retries: int = 4):
        self._store = S3Store(
            bucket,
            prefix=prefix,
            client_options={
                "timeout": REQUEST_TIMEOUT,
                "connect_timeout": CONNECT_TIMEOUT,
                "allow_http": allow_http,
            },
            retry_config={"max_retries": retries, "retry_timeout": RETRY_TIMEOUT},
        )

    async def add(self, key: BlobKey, n: int, chunk: bytes) -> None:
        with _outages():
            await self._store.put_async(_object(key, n), chunk, use_multipart=False)

    async def read(self, key: BlobKey, first: int, last: int) -> AsyncIterator[bytes]:
        """Each piece is a range request of its own, so a slow client holds no connection."""
        while first <= last:
            n, begin = divmod(first, OBJECT_BYTES)
            # Pieces end at multiples of their size, and so never pass the end of an object.
            end = min((begin // READ_BYTES + 1) * READ_BYTES, last + 1 - n * OBJECT_BYTES)
            yield await self._range(_object(key, n), begin, end)
            first = n * OBJECT_BYTES + end

    async def _range(self, name: str, begin: int, end: int) -> bytes:
        with _outages():
            try:
                return bytes(await self._store.get_range_async(name, start=begin, end=end))
            except FileNotFoundError as error:
                raise BytesDeleted from error

    async def remove(self, key: BlobKey) -> None:
        with _outages():
            found = await self._store.list(_folder(key)).collect_async()
            if found:
                await self._store.delete_async([one["path"] for one in found])

    async def check(self) -> None:
        """Write, read, list and delete an object. A missing permission raises `FilesUnavailable`."""
        key = BlobKey(_CHECKS, new_id())
        await self.add(key, 0, b"holdfast doctor")
        try:
            async for _ in self.read(key, 0, 7):
                pass
        finally:
            await self.remove(key)
        with _outages():
            left = await self._store.list(_folder(key)).collect_async()
        if left:
            raise FilesUnavailable("An object that was deleted is still in the list of the bucket.")


def _folder(key: BlobKey) -> str:
    return f"{key.tenant}/{key.id}"


def _object(key: BlobKey, n: int) -> str:
    return f"{_folder(key)}/{n}"


@contextmanager
def _outages() -> Iterator[None]:
    """Every failure of S3 is an outage, also a bucket that doesn't exist: only an operator can tell them apart."""
    try:
        yield
    except (BaseError, OSError) as error:
        reason = str(error).split("\n", 1)[0]
        log.warning("file_store_failed", error=reason)
        raise FilesUnavailable(
            "The S3 bucket of the files can't be used. Try again in a moment."
        ) from error
