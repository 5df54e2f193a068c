"""The time that runs were executed by workers that didn't live to tell."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "runs",
        sa.Column("lost_seconds", sa.Double(), server_default=sa.text("0"), nullable=False),
    )


def downgrade() -> None:
    op.drop_column("runs", "lost_seconds")
