"""The rows of blobs, and chunks in Postgres. Complete bytes of a tenant are stored once; their SHA-256 finds them.

An upload writes each chunk with a statement of its own, so that a slow client holds no connection. Bytes without a
file, and uploads that broke off, are deleted by retention. Bytes in S3 are deleted in two steps: a transaction sets
`deleted_at`, and a periodic job deletes the objects and then the row.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import delete, exists, func, null, select, tuple_, update

from app.domain.errors import FilesUnavailable
from app.domain.ids import Tenant
from app.storage.postgres.database import Connection, RawPool
from app.storage.postgres.named_parameters import NamedSql
from app.storage.tables import blobs, files

_BEGIN = "INSERT INTO blobs (tenant, id, place) VALUES ($1, $2, $3)"
_KEEP = """
UPDATE blobs SET created_at = now()
WHERE tenant = $1 AND id = $2 AND sha256 IS NULL AND deleted_at IS NULL
RETURNING TRUE
"""
_PLACE = "SELECT place FROM blobs WHERE tenant = $1 AND id = $2"
_ADD_CHUNK = NamedSql(
    "INSERT INTO blob_chunks (tenant, blob_id, n, bytes) VALUES (:tenant, :blob_id, :n, :bytes)"
)
_CHUNK = "SELECT bytes FROM blob_chunks WHERE tenant = $1 AND blob_id = $2 AND n = $3"
_DISCARD = """
WITH in_postgres AS (
  DELETE FROM blobs WHERE tenant = $1 AND id = $2 AND sha256 IS NULL AND place = 'pg'
)
UPDATE blobs SET deleted_at = coalesce(deleted_at, now())
WHERE tenant = $1 AND id = $2 AND sha256 IS NULL AND place <> 'pg'
"""
_DELETED = """
SELECT tenant, id FROM blobs
WHERE place = $1 AND deleted_at < now() - make_interval(secs => $2)
ORDER BY deleted_at LIMIT 100
"""
_FORGET = "DELETE FROM blobs WHERE tenant = $1 AND id = $2 AND deleted_at IS NOT NULL"


class BlobKey(Struct, frozen=True):
    tenant: Tenant
    id: str


async def begin(pool: RawPool, key: BlobKey, place: str) -> None:
    """Begin an upload to this place."""
    await pool.execute(_BEGIN, key.tenant, key.id, place)


async def keep(pool: RawPool, key: BlobKey) -> None:
    """Keep retention from deleting an upload that still runs; refuse one that is deleted."""
    if not await pool.fetchval(_KEEP, key.tenant, key.id):
        raise _deleted_meanwhile()


async def place_of(pool: RawPool, key: BlobKey) -> str | None:
    """Where the bytes are; None if they were deleted."""
    place: str | None = await pool.fetchval(_PLACE, key.tenant, key.id)
    return place


async def add_chunk(pool: RawPool, key: BlobKey, n: int, chunk: bytes) -> None:
    await pool.execute(*_ADD_CHUNK(tenant=key.tenant, blob_id=key.id, n=n, bytes=chunk))


async def discard(pool: RawPool, key: BlobKey) -> None:
    """Delete an upload that broke off, with its chunks. Its objects in S3 are deleted later."""
    await pool.execute(_DISCARD, key.tenant, key.id)


async def deleted(pool: RawPool, place: str, older_than: float) -> Sequence[BlobKey]:
    """Blobs whose objects in this place are to be deleted, since at least so many seconds."""
    rows: Any = await pool.fetch(_DELETED, place, older_than)
    return [BlobKey(Tenant(row["tenant"]), str(row["id"])) for row in rows]


async def forget(pool: RawPool, key: BlobKey) -> None:
    """Delete the row of a blob whose objects are deleted."""
    await pool.execute(_FORGET, key.tenant, key.id)


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
        await connection.execute(delete(blobs).where(own, blobs.c.place == "pg"))
        await connection.execute(update(blobs).where(own).values(deleted_at=func.now()))
        return str(found)
    statement = update(blobs).where(own, blobs.c.deleted_at.is_(None))
    if not (await connection.execute(statement.values(sha256=sha256, size=size))).rowcount:
        raise _deleted_meanwhile()
    return key.id


def _deleted_meanwhile() -> FilesUnavailable:
    return FilesUnavailable(
        "The upload took so long that retention has deleted its bytes. Send the file again."
    )


async def delete_unused(connection: Connection, older_than: float, limit: int) -> int:
    """Delete bytes of at least this age that no file refers to, and uploads that broke off."""
    key = (blobs.c.tenant, blobs.c.id)
    is_used = exists().where(files.c.tenant == blobs.c.tenant, files.c.blob_id == blobs.c.id)
    unused = (
        select(*key)
        .where(
            blobs.c.created_at < func.now() - timedelta(seconds=older_than),
            blobs.c.deleted_at.is_(None),
            ~is_used,
        )
        .limit(min(limit, 20))
        .with_for_update(skip_locked=True)
    )
    found = [tuple(row) for row in await connection.execute(unused)]
    if not found:
        return 0
    # Judged again under the lock: a file may have been created before it was taken.
    unused_now = (tuple_(*key).in_(found), ~is_used)
    in_postgres = delete(blobs).where(*unused_now, blobs.c.place == "pg")
    elsewhere = update(blobs).where(*unused_now, blobs.c.place != "pg")
    count: int = (await connection.execute(in_postgres)).rowcount
    # Without the hash, a new upload of the same bytes doesn't find them.
    mark = elsewhere.values(sha256=null(), size=null(), deleted_at=func.now())
    return count + (await connection.execute(mark)).rowcount
