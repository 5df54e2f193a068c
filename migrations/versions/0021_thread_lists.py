"""Lists of the threads of a resource, and of those below a thread."""

import sqlalchemy as sa
from alembic import op

revision = "0021_thread_lists"
down_revision = "0020_usage_trees"
branch_labels = None
depends_on = None

is_additive = True

_COLUMNS = {"threads_of_resources": "resource_id", "threads_of_parents": "parent_thread_id"}


def upgrade() -> None:
    for name, column in _COLUMNS.items():
        op.create_index(
            name,
            "threads",
            ["tenant", column, "created_at", "id"],
            postgresql_where=sa.text(f"{column} IS NOT NULL"),
        )


def downgrade() -> None:
    for name in _COLUMNS:
        op.drop_index(name, "threads")
