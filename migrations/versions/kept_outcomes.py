"""Outcomes of calls that finished before their turn, kept with their calls."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tool_calls", sa.Column("kept", postgresql.JSONB(astext_type=sa.Text())))


def downgrade() -> None:
    op.drop_column("tool_calls", "kept")
