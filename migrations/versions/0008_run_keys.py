"""Runs show the key of their thread, and inputs say who retracted them."""

import sqlalchemy as sa
from alembic import op

revision = "0008_run_keys"
down_revision = "0007_usage"
branch_labels = None
depends_on = None

is_additive = True


def upgrade() -> None:
    op.add_column("runs", sa.Column("thread_key", sa.Text()))
    op.add_column("inputs", sa.Column("retracted_by", sa.Text()))


def downgrade() -> None:
    op.drop_column("inputs", "retracted_by")
    op.drop_column("runs", "thread_key")
