"""The usage ledger: a row for each billed request to a model."""

import sqlalchemy as sa
from alembic import op

revision = "0007_usage"
down_revision = "0006_thread_titles"
branch_labels = None
depends_on = None

is_additive = True


def upgrade() -> None:
    op.create_table(
        "usage",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("run_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("root_run_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("input", sa.BigInteger(), nullable=False),
        sa.Column("output", sa.BigInteger(), nullable=False),
        sa.Column("cache_read", sa.BigInteger(), nullable=False),
        sa.Column("cache_write", sa.BigInteger(), nullable=False),
        sa.Column("reasoning", sa.BigInteger(), nullable=False),
        sa.Column("cost_micros", sa.BigInteger(), nullable=True),
        sa.Column("priced_by", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(cost_micros IS NULL) = (priced_by IS NULL)", name=op.f("usage_priced_by_check")
        ),
        sa.PrimaryKeyConstraint(
            "tenant",
            "thread_id",
            "run_id",
            "attempt",
            "step_index",
            "number",
            name=op.f("usage_pkey"),
        ),
    )
    op.create_index(op.f("usage_tenant_at_idx"), "usage", ["tenant", "at"])
    op.create_index("usage_by_age", "usage", ["at"], postgresql_using="brin")


def downgrade() -> None:
    op.drop_table("usage")
