"""Calls know which worker has them; runs that didn't end well are found by why."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tool_calls", sa.Column("worker", sa.Uuid(as_uuid=False)))
    op.create_index(
        "runs_ended_by_code",
        "runs",
        ["tenant", sa.text("(termination ->> 'code')"), "created_at", "id"],
        postgresql_where=sa.text("(termination ->> 'code') IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("runs_ended_by_code", "runs")
    op.drop_column("tool_calls", "worker")
