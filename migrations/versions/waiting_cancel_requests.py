"""An index of suspended runs that have a cancel request."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "runs_waiting_to_be_cancelled",
        "runs",
        ["updated_at"],
        postgresql_where=sa.text("status = 'waiting' AND cancel_requested_at IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("runs_waiting_to_be_cancelled", table_name="runs")
