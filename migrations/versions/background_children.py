"""Background tasks that are runs of other agents."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "tasks",
        sa.Column(
            "child", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
    )
    op.add_column("tasks", sa.Column("child_run_id", sa.Uuid(as_uuid=False), nullable=True))
    op.create_check_constraint(
        op.f("tasks_child_check"), "tasks", "(child IS NULL) = (child_run_id IS NULL)"
    )
    op.create_check_constraint(
        op.f("tasks_child_owner_check"), "tasks", "child IS NULL OR owner IS NULL"
    )
    op.create_index(
        "tasks_of_children",
        "tasks",
        ["tenant", "child_run_id"],
        postgresql_where=sa.text("child_run_id IS NOT NULL"),
    )


def downgrade() -> None:
    # Whoever claims such a task then finds that no tool can do it, and tells its run so.
    op.drop_index("tasks_of_children", table_name="tasks")
    op.drop_constraint(op.f("tasks_child_owner_check"), "tasks")
    op.drop_constraint(op.f("tasks_child_check"), "tasks")
    op.drop_column("tasks", "child_run_id")
    op.drop_column("tasks", "child")
