"""Pause requests on runs, and an index for runs that a resume has released."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("pause_requested_at", sa.DateTime(timezone=True)))
    op.add_column("runs", sa.Column("pause_requested_by", sa.Text()))
    op.add_column("runs", sa.Column("pause_reason", sa.Text()))
    op.create_index(
        "runs_resumed",
        "runs",
        ["updated_at"],
        postgresql_where=sa.text("waiting_reason = 'manual_pause' AND pause_requested_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_index("runs_resumed", table_name="runs")
    op.drop_column("runs", "pause_reason")
    op.drop_column("runs", "pause_requested_by")
    op.drop_column("runs", "pause_requested_at")
