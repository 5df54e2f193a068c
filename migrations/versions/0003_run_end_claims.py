"""The claim of `run_end` hooks ends, so that another worker calls the hooks of one that has died."""

import sqlalchemy as sa
from alembic import op

revision = "0003_run_end_claims"
down_revision = "0002_thread_keys"
branch_labels = None
depends_on = None

is_additive = True


def upgrade() -> None:
    op.add_column(
        "pending_run_ends", sa.Column("claims", sa.Integer(), nullable=False, server_default="0")
    )
    op.add_column("pending_run_ends", sa.Column("claimed_until", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("pending_run_ends", "claimed_until")
    op.drop_column("pending_run_ends", "claims")
