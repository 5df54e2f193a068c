"""An index for searches by the words of threads' titles."""

import sqlalchemy as sa
from alembic import op

revision = "0006_thread_titles"
down_revision = "0005_mcp"
branch_labels = None
depends_on = None

is_additive = True


def upgrade() -> None:
    op.create_index(
        "threads_titles",
        "threads",
        [sa.text("to_tsvector('simple'::regconfig, title)")],
        postgresql_using="gin",
        postgresql_where=sa.text("title IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("threads_titles", "threads")
