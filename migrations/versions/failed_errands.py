"""Errands that fail: how often they were tried, when they are tried again, and which were given up."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "failed_errands",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("about", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("on_behalf_of", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("tries", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column(
            "failed_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("given_up_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("tries >= 1", name=op.f("failed_errands_tries_check")),
        sa.ForeignKeyConstraint(
            ["tenant", "on_behalf_of"],
            ["runs.tenant", "runs.id"],
            name=op.f("failed_errands_tenant_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "name", "about", name=op.f("failed_errands_pkey")),
    )
    op.create_index(
        op.f("failed_errands_tenant_on_behalf_of_idx"),
        "failed_errands",
        ["tenant", "on_behalf_of"],
    )


def downgrade() -> None:
    op.drop_table("failed_errands")
