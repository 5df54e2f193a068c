"""The usage of a tree of runs."""

import sqlalchemy as sa
from alembic import op

revision = "0020_usage_trees"
down_revision = "0019_ticket_kinds"
branch_labels = None
depends_on = None

is_additive = True


def upgrade() -> None:
    op.create_index(
        "usage_below_roots",
        "usage",
        ["tenant", "root_run_id"],
        postgresql_where=sa.text("run_id <> root_run_id"),
    )


def downgrade() -> None:
    op.drop_index("usage_below_roots", "usage")
