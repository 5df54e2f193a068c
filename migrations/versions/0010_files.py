"""Files: their rows, the threads that refer to them, and their bytes in chunks."""

import sqlalchemy as sa
from alembic import op

revision = "0010_files"
down_revision = "0009_structured_output"
branch_labels = None
depends_on = None

is_additive = True

_uuid = sa.Uuid(as_uuid=False)


def _created_at() -> sa.Column[object]:
    now = sa.text("now()")
    return sa.Column("created_at", sa.DateTime(timezone=True), server_default=now, nullable=False)


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", _uuid, nullable=False),
        sa.Column("sha256", sa.Text(), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=True),
        _created_at(),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("blobs_pkey")),
        sa.CheckConstraint("(sha256 IS NULL) = (size IS NULL)", name=op.f("blobs_size_check")),
    )
    op.create_index(
        "blobs_by_hash",
        "blobs",
        ["tenant", "sha256"],
        unique=True,
        postgresql_where=sa.text("sha256 IS NOT NULL"),
    )
    op.create_index(op.f("blobs_created_at_idx"), "blobs", ["created_at"])
    op.create_table(
        "blob_chunks",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("blob_id", _uuid, nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "blob_id", "n", name=op.f("blob_chunks_pkey")),
        sa.ForeignKeyConstraint(
            ["tenant", "blob_id"],
            ["blobs.tenant", "blobs.id"],
            ondelete="CASCADE",
            name=op.f("blob_chunks_tenant_blob_id_fkey"),
        ),
    )
    # Most files are compressed already.
    op.execute("ALTER TABLE blob_chunks ALTER COLUMN bytes SET STORAGE EXTERNAL")
    op.create_table(
        "files",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", _uuid, nullable=False),
        sa.Column("blob_id", _uuid, nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        _created_at(),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("files_pkey")),
        sa.ForeignKeyConstraint(
            ["tenant", "blob_id"],
            ["blobs.tenant", "blobs.id"],
            name=op.f("files_tenant_blob_id_fkey"),
        ),
    )
    op.create_index(op.f("files_tenant_created_at_id_idx"), "files", ["tenant", "created_at", "id"])
    op.create_index(op.f("files_tenant_blob_id_idx"), "files", ["tenant", "blob_id"])
    op.create_table(
        "file_threads",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("thread_id", _uuid, nullable=False),
        sa.Column("file_id", _uuid, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "thread_id", "file_id", name=op.f("file_threads_pkey")),
        sa.ForeignKeyConstraint(
            ["tenant", "thread_id"],
            ["threads.tenant", "threads.id"],
            ondelete="CASCADE",
            name=op.f("file_threads_tenant_thread_id_fkey"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "file_id"],
            ["files.tenant", "files.id"],
            ondelete="CASCADE",
            name=op.f("file_threads_tenant_file_id_fkey"),
        ),
    )
    op.create_index(op.f("file_threads_tenant_file_id_idx"), "file_threads", ["tenant", "file_id"])


def downgrade() -> None:
    for table in ("file_threads", "files", "blob_chunks", "blobs"):
        op.drop_table(table)
