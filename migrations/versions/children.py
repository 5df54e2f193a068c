"""Runs that wait for runs: found by their parents, and by the tickets that they answer."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0006"
branch_labels = None
depends_on = None

_BEFORE = (
    "tool_permission", "user_input", "background_tasks", "external_event", "rate_limit",
    "manual_pause", "agent_version_unavailable",
)  # fmt: skip


def upgrade() -> None:
    _reasons(*_BEFORE, "child_runs")
    op.create_index(
        "runs_of_parents",
        "runs",
        ["tenant", "parent_run_id"],
        postgresql_where=sa.text("parent_run_id IS NOT NULL"),
    )
    op.create_index(
        "tickets_of_children",
        "tickets",
        ["tenant", "run_id"],
        postgresql_where=sa.text("kind = 'child' AND status = 'open'"),
    )


def downgrade() -> None:
    op.drop_index("tickets_of_children", table_name="tickets")
    op.drop_index("runs_of_parents", table_name="runs")
    op.execute(
        "UPDATE runs SET waiting_reason = 'external_event' WHERE waiting_reason = 'child_runs'"
    )
    _reasons(*_BEFORE)


def _reasons(*known: str) -> None:
    allowed = ", ".join(f"'{reason}'" for reason in known)
    op.drop_constraint(op.f("runs_waiting_reason_check"), "runs")
    op.create_check_constraint(
        op.f("runs_waiting_reason_check"), "runs", f"waiting_reason IN ({allowed})"
    )
