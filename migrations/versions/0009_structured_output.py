"""The final answer of a run as data."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009_structured_output"
down_revision = "0008_run_keys"
branch_labels = None
depends_on = None

is_additive = True


def upgrade() -> None:
    op.add_column("runs", sa.Column("structured_output", postgresql.JSONB(), nullable=True))


def downgrade() -> None:
    op.drop_column("runs", "structured_output")
