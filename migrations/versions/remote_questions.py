"""Questions of remote agents that are open: looked at now and then, without reading through all tickets."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "tickets_of_remotes",
        "tickets",
        ["created_at"],
        postgresql_where=sa.text(
            "status = 'open' AND (evidence ->> 'remote_question') IS NOT NULL"
        ),
    )


def downgrade() -> None:
    op.drop_index("tickets_of_remotes", table_name="tickets")
