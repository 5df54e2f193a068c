"""The queue of a thread has one order, `events_from`; `place` held another one."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("runs", "place")


def downgrade() -> None:
    op.add_column("runs", sa.Column("place", sa.BigInteger()))
