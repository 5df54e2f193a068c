"""Indexes for lists of runs by status, outcome, agent and metadata."""

import sqlalchemy as sa
from alembic import op

revision = "0004_list_indexes"
down_revision = "0003_run_end_claims"
branch_labels = None
depends_on = None

is_additive = True


def upgrade() -> None:
    op.create_index(
        "runs_unfinished",
        "runs",
        ["tenant", "status", "created_at", "id"],
        postgresql_where=sa.text("status <> 'done'"),
    )
    op.create_index(
        "runs_without_success",
        "runs",
        ["tenant", sa.text("(termination ->> 'type')"), "created_at", "id"],
        postgresql_where=sa.text(
            "(termination ->> 'type') NOT IN ('natural_end', 'behavior_requested')"
        ),
    )
    op.create_index(
        op.f("runs_tenant_agent_id_created_at_id_idx"),
        "runs",
        ["tenant", "agent_id", "created_at", "id"],
    )
    op.create_index(
        "runs_metadata",
        "runs",
        ["metadata"],
        postgresql_using="gin",
        postgresql_ops={"metadata": "jsonb_path_ops"},
        postgresql_where=sa.text("metadata <> '{}'"),
    )


def downgrade() -> None:
    op.drop_index("runs_metadata", "runs")
    op.drop_index(op.f("runs_tenant_agent_id_created_at_id_idx"), "runs")
    op.drop_index("runs_without_success", "runs")
    op.drop_index("runs_unfinished", "runs")
