"""Runs that have ended without their agent's code, whose `run_end` hooks a worker has to call."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pending_run_ends",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("log_end", sa.BigInteger(), nullable=False),
        sa.Column("thread_state", JSONB(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "run_id"],
            ["runs.tenant", "runs.id"],
            name=op.f("pending_run_ends_tenant_run_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "run_id", name=op.f("pending_run_ends_pkey")),
    )
    op.create_index(op.f("pending_run_ends_created_at_idx"), "pending_run_ends", ["created_at"])


def downgrade() -> None:
    op.drop_table("pending_run_ends")
