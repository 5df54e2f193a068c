"""Threads can have a key: the client's own name."""

import sqlalchemy as sa
from alembic import op

revision = "0002_thread_keys"
down_revision = "0001_baseline"
branch_labels = None
depends_on = None

is_additive = True


def upgrade() -> None:
    op.add_column("threads", sa.Column("key", sa.Text()))


def downgrade() -> None:
    op.drop_column("threads", "key")
