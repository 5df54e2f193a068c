"""The digest of the tool that a call is of."""

import sqlalchemy as sa
from alembic import op

revision = "0012_tool_digests"
down_revision = "0011_saved_files"
branch_labels = None
depends_on = None

is_additive = True


def upgrade() -> None:
    op.add_column("tool_calls", sa.Column("tool_digest", sa.Text()))


def downgrade() -> None:
    op.drop_column("tool_calls", "tool_digest")
