"""The place of a blob's bytes, and the time since which its objects are to be deleted."""

import sqlalchemy as sa
from alembic import op

revision = "0015_blob_places"
down_revision = "0014_memories"
branch_labels = None
depends_on = None

is_additive = True


def upgrade() -> None:
    op.add_column("blobs", sa.Column("place", sa.Text(), server_default="pg", nullable=False))
    op.add_column("blobs", sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "blobs_deleted",
        "blobs",
        ["deleted_at"],
        postgresql_where=sa.text("deleted_at IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("blobs_deleted", "blobs")
    op.drop_column("blobs", "deleted_at")
    op.drop_column("blobs", "place")
