"""Children that have ended and aren't to be kept: few at any time, and found without reading through the rest."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "runs_to_forget",
        "runs",
        ["updated_at"],
        postgresql_where=sa.text(
            "status = 'done' AND parent_run_id IS NOT NULL AND (request ->> 'keep') = 'false'"
        ),
    )


def downgrade() -> None:
    op.drop_index("runs_to_forget", table_name="runs")
