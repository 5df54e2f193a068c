"""Runs that are taken out of their conversation for another one, and the order in which others wait."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("rolled_back_by", sa.Uuid(as_uuid=False)))
    op.add_column("runs", sa.Column("thread_state_before", postgresql.JSONB(astext_type=sa.Text())))
    op.add_column("runs", sa.Column("place", sa.BigInteger()))
    op.create_table(
        "rollbacks",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("from_seq", sa.BigInteger(), nullable=False),
        sa.Column("to_seq", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("by_run_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "from_seq >= 1 AND from_seq <= to_seq", name=op.f("rollbacks_stretch_check")
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "thread_id"],
            ["threads.tenant", "threads.id"],
            name=op.f("rollbacks_tenant_thread_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "thread_id", "from_seq", name=op.f("rollbacks_pkey")),
    )


def downgrade() -> None:
    op.drop_table("rollbacks")
    op.drop_column("runs", "place")
    op.drop_column("runs", "thread_state_before")
    op.drop_column("runs", "rolled_back_by")
