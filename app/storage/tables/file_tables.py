"""The tables of files and their bytes."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import BYTEA

from app.storage.tables.columns import NOW, TIME, UUID, belongs_to, metadata

# The bytes of files. Those without a hash are of uploads that haven't ended, or will be deleted. `place` is 'pg' for
# chunks in this database and 's3' for objects in a bucket. A row with `deleted_at` stays until its objects are deleted.
blobs = Table(
    "blobs",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", UUID, nullable=False),
    Column("sha256", Text),
    Column("size", BigInteger),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    Column("place", Text, nullable=False, server_default="pg"),
    Column("deleted_at", TIME),
    PrimaryKeyConstraint("tenant", "id"),
    CheckConstraint("(sha256 IS NULL) = (size IS NULL)", name="size"),
    Index("blobs_deleted", "deleted_at", postgresql_where=text("deleted_at IS NOT NULL")),
    Index(
        "blobs_by_hash",
        "tenant",
        "sha256",
        unique=True,
        postgresql_where=text("sha256 IS NOT NULL"),
    ),
    Index(None, "created_at"),
)


blob_chunks = Table(
    "blob_chunks",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("blob_id", UUID, nullable=False),
    Column("n", Integer, nullable=False),
    Column("bytes", BYTEA, nullable=False),
    PrimaryKeyConstraint("tenant", "blob_id", "n"),
    belongs_to("blobs", "blob_id"),
)


files = Table(
    "files",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", UUID, nullable=False),
    Column("blob_id", UUID, nullable=False),
    Column("name", Text),
    Column("media_type", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant", "id"),
    ForeignKeyConstraint(["tenant", "blob_id"], ["blobs.tenant", "blobs.id"]),
    Index(None, "tenant", "created_at", "id"),
    Index(None, "tenant", "blob_id"),
)


# The threads that refer to a file: by their messages, or because their tools saved it. A file is deleted with the last of them.
file_threads = Table(
    "file_threads",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("thread_id", UUID, nullable=False),
    Column("file_id", UUID, nullable=False),
    PrimaryKeyConstraint("tenant", "thread_id", "file_id"),
    belongs_to("threads", "thread_id"),
    belongs_to("files", "file_id"),
    Index(None, "tenant", "file_id"),
)


# The files that tools have saved, numbered within their run.
saved_files = Table(
    "saved_files",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("run_id", UUID, nullable=False),
    Column("number", Integer, nullable=False),
    Column("file_id", UUID, nullable=False),
    Column("call_id", Text, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    PrimaryKeyConstraint("tenant", "run_id", "number"),
    belongs_to("runs", "run_id"),
    belongs_to("files", "file_id"),
    Index(None, "tenant", "file_id"),
)
