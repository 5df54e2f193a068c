"""The effect of a ticket's tool, lists of open tickets by expiry, and the runs below a root."""

import sqlalchemy as sa
from alembic import op

revision = "0016_ticket_lists"
down_revision = "0015_blob_places"
branch_labels = None
depends_on = None

is_additive = True


def upgrade() -> None:
    op.add_column("tickets", sa.Column("tool_effect", sa.Text(), nullable=True))
    op.create_check_constraint(
        op.f("tickets_tool_effect_check"),
        "tickets",
        "tool_effect IN ('read', 'idempotent', 'unsafe')",
    )
    op.create_index(
        "tickets_open_by_expiry",
        "tickets",
        [
            "tenant",
            sa.text("coalesce(expires_at, '9000-01-01 00:00:00+00'::timestamp with time zone)"),
            "id",
        ],
        postgresql_where=sa.text("status = 'open'"),
    )
    op.create_index(
        "runs_below_roots",
        "runs",
        ["tenant", "root_run_id"],
        postgresql_where=sa.text("parent_run_id IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("runs_below_roots", "runs")
    op.drop_index("tickets_open_by_expiry", "tickets")
    op.drop_column("tickets", "tool_effect")
