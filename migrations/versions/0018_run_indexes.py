"""No index of runs has `updated_at`, so that checkpoints write no index; and lists of runs that wait for the same."""

import sqlalchemy as sa
from alembic import op

revision = "0018_run_indexes"
down_revision = "0017_usage_sums"
branch_labels = None
depends_on = None

is_additive = True

_REPLACED = {
    "runs_resumed": "waiting_reason = 'manual_pause' AND pause_requested_at IS NULL",
    "runs_waiting_to_be_cancelled": "status = 'waiting' AND cancel_requested_at IS NOT NULL",
    "runs_to_delete": (
        "status = 'done' AND parent_run_id IS NOT NULL AND (request ->> 'keep') = 'false'"
    ),
    "runs_unread": "waiting_reason = 'background_tasks' AND unread_inputs > 0",
}


def upgrade() -> None:
    for name, where in _REPLACED.items():
        _replace(name, "created_at", where)
    op.create_index(
        "runs_waiting_for",
        "runs",
        ["tenant", "waiting_reason", "created_at", "id"],
        postgresql_where=sa.text("waiting_reason IS NOT NULL"),
    )


def _replace(name: str, column: str, where: str) -> None:
    """The version before searches the same rows in it, and sorts them."""
    op.drop_index(name)
    op.create_index(name, "runs", [column], postgresql_where=sa.text(where))


def downgrade() -> None:
    op.drop_index("runs_waiting_for", "runs")
    for name, where in _REPLACED.items():
        _replace(name, "updated_at", where)
