"""Files that tools have saved, by run and call."""

import sqlalchemy as sa
from alembic import op

revision = "0011_saved_files"
down_revision = "0010_files"
branch_labels = None
depends_on = None

is_additive = True

_uuid = sa.Uuid(as_uuid=False)


def upgrade() -> None:
    op.create_table(
        "saved_files",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", _uuid, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("file_id", _uuid, nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "run_id", "number", name=op.f("saved_files_pkey")),
        sa.ForeignKeyConstraint(
            ["tenant", "run_id"],
            ["runs.tenant", "runs.id"],
            ondelete="CASCADE",
            name=op.f("saved_files_tenant_run_id_fkey"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "file_id"],
            ["files.tenant", "files.id"],
            ondelete="CASCADE",
            name=op.f("saved_files_tenant_file_id_fkey"),
        ),
    )
    op.create_index(op.f("saved_files_tenant_file_id_idx"), "saved_files", ["tenant", "file_id"])


def downgrade() -> None:
    op.drop_table("saved_files")
