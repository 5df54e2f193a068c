"""The sweeper's search for child runs whose parent is done."""

import sqlalchemy as sa
from alembic import op

revision = "0022_unfinished_children"
down_revision = "0021_thread_lists"
branch_labels = None
depends_on = None

is_additive = True


def upgrade() -> None:
    op.create_index(
        "runs_unfinished_children",
        "runs",
        ["tenant", "parent_run_id"],
        postgresql_where=sa.text("parent_run_id IS NOT NULL AND status <> 'done'"),
    )


def downgrade() -> None:
    op.drop_index("runs_unfinished_children", "runs")
