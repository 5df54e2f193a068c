"""Runs that wait for a rate limit: until when, and found by that moment."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("waiting_until", sa.DateTime(timezone=True)))
    op.create_check_constraint(
        op.f("runs_waiting_until_check"),
        "runs",
        "(waiting_until IS NOT NULL) = (waiting_reason IS NOT DISTINCT FROM 'rate_limit')",
    )
    op.create_index(
        "runs_rate_limited",
        "runs",
        ["waiting_until"],
        postgresql_where=sa.text("waiting_reason = 'rate_limit'"),
    )


def downgrade() -> None:
    """Runs that wait for a rate limit are still resumed, by the deliveries that are queued for them."""
    op.drop_index("runs_rate_limited", table_name="runs")
    op.drop_constraint(op.f("runs_waiting_until_check"), "runs")
    op.drop_column("runs", "waiting_until")
