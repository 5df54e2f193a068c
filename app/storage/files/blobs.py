"""The bytes of files, in chunks. Complete bytes of a tenant are stored once; their SHA-256 finds them.

An upload writes each chunk with a statement of its own, so that a slow client holds no connection. Bytes without a
file, and uploads that broke off, are deleted by retention.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, exists, func, select, tuple_, update

from app.domain.ids import Tenant
from app.storage.postgres.database import Connection, RawPool
from app.storage.postgres.named_parameters import NamedSql
from app.storage.tables import blobs, files

_BEGIN = "INSERT INTO blobs (tenant, id) VALUES ($1, $2)"
_ADD_CHUNK = NamedSql(
    "INSERT INTO blob_chunks (tenant, blob_id, n, bytes) VALUES (:tenant, :blob_id, :n, :bytes)"
)
_CHUNK = "SELECT bytes FROM blob_chunks WHERE tenant = $1 AND blob_id = $2 AND n = $3"
_DISCARD = "DELETE FROM blobs WHERE tenant = $1 AND id = $2 AND sha256 IS NULL"


@dataclass(frozen=True, slots=True)
class BlobKey:
    tenant: Tenant
    id: str


async def begin(pool: RawPool, key: BlobKey) -> None:
    """Begin an upload."""
    await pool.execute(_BEGIN, key.tenant, key.id)


async def add_chunk(pool: RawPool, key: BlobKey, n: int, chunk: bytes) -> None:
    await pool.execute(*_ADD_CHUNK(tenant=key.tenant, blob_id=key.id, n=n, bytes=chunk))


async def discard(pool: RawPool, key: BlobKey) -> None:
    """Delete an upload that broke off, with its chunks."""
    await pool.execute(_DISCARD, key.tenant, key.id)


async def chunk(pool: RawPool, key: BlobKey, n: int) -> bytes | None:
    """The chunk number `n`, counted from 0; None if the bytes were deleted."""
    found: Any = await pool.fetchval(_CHUNK, key.tenant, key.id, n)
    return None if found is None else bytes(found)


async def complete(connection: Connection, key: BlobKey, sha256: str, size: int) -> str:
    """Complete an upload; returns the id of its bytes, which may be those of an earlier upload.

    Two uploads of the same bytes at once wait for each other.
    """
    await connection.execute(
        select(func.pg_advisory_xact_lock(func.hashtextextended(f"{key.tenant} {sha256}", 0)))
    )
    # The lock keeps retention from deleting these bytes before a file refers to them.
    known = select(blobs.c.id).where(blobs.c.tenant == key.tenant, blobs.c.sha256 == sha256)
    found = (
        await connection.execute(known.with_for_update(key_share=True, read=True))
    ).scalar_one_or_none()
    own = (blobs.c.tenant == key.tenant) & (blobs.c.id == key.id)
    if found is not None:
        await connection.execute(delete(blobs).where(own))
        return str(found)
    await connection.execute(update(blobs).where(own).values(sha256=sha256, size=size))
    return key.id


async def delete_unused(connection: Connection, older_than: float, limit: int) -> int:
    """Delete bytes of at least this age that no file refers to, and uploads that broke off."""
    key = (blobs.c.tenant, blobs.c.id)
    is_used = exists().where(files.c.tenant == blobs.c.tenant, files.c.blob_id == blobs.c.id)
    unused = (
        select(*key)
        .where(blobs.c.created_at < func.now() - timedelta(seconds=older_than), ~is_used)
        .limit(min(limit, 20))
        .with_for_update(skip_locked=True)
    )
    found = [tuple(row) for row in await connection.execute(unused)]
    if not found:
        return 0
    # Judged again under the lock: a file may have been created before it was taken.
    statement = delete(blobs).where(tuple_(*key).in_(found), ~is_used)
    return (await connection.execute(statement)).rowcount
