"""Background tasks, and what of them and of its inbox a run's own row must say."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for counter in ("unread_inputs", "open_tasks"):
        op.add_column(
            "runs", sa.Column(counter, sa.Integer(), server_default=sa.text("0"), nullable=False)
        )
        op.create_check_constraint(op.f(f"runs_{counter}_check"), "runs", f"{counter} >= 0")
    # Messages that wait for runs which were in line when this was migrated.
    op.execute(
        "UPDATE runs r SET unread_inputs = w.waiting FROM (SELECT tenant, run_id, count(*) AS waiting"
        " FROM inputs WHERE status = 'pending' GROUP BY tenant, run_id) w"
        " WHERE r.tenant = w.tenant AND r.id = w.run_id"
    )
    op.create_index(
        "runs_unread",
        "runs",
        ["updated_at"],
        unique=False,
        postgresql_where=sa.text("waiting_reason = 'background_tasks' AND unread_inputs > 0"),
    )
    op.create_table(
        "tasks",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("thread_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("agent_version", sa.Text(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("tool_name", sa.Text(), nullable=False),
        sa.Column("arguments", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("effect", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'running'"), nullable=False),
        sa.Column(
            "result",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=True,
        ),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column(
            "inbox",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'"),
            nullable=False,
        ),
        sa.Column("inbox_read", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("owner", sa.Uuid(as_uuid=False), nullable=True),
        sa.Column("losses", sa.Integer(), server_default=sa.text("0"), nullable=False),
        _time("created_at", is_now=True),
        _time("started_at"),
        _time("finished_at"),
        _time("reported_at"),
        _time("updated_at", is_now=True),
        sa.CheckConstraint(
            "effect IN ('read', 'idempotent', 'unsafe')", name=op.f("tasks_effect_check")
        ),
        sa.CheckConstraint(
            "status IN ('running', 'completed', 'failed', 'cancelled')",
            name=op.f("tasks_status_check"),
        ),
        sa.CheckConstraint(
            "(status = 'running') = (finished_at IS NULL)", name=op.f("tasks_finished_check")
        ),
        sa.CheckConstraint(
            "(status = 'failed') = (error IS NOT NULL)", name=op.f("tasks_error_check")
        ),
        sa.CheckConstraint(
            "result IS NULL OR status = 'completed'", name=op.f("tasks_result_check")
        ),
        sa.CheckConstraint("owner IS NULL OR status = 'running'", name=op.f("tasks_owner_check")),
        sa.CheckConstraint(
            "(attempt = 0) = (started_at IS NULL)", name=op.f("tasks_attempt_check")
        ),
        sa.CheckConstraint(
            "reported_at IS NULL OR status <> 'running'", name=op.f("tasks_reported_check")
        ),
        sa.CheckConstraint(
            "inbox_read BETWEEN 0 AND jsonb_array_length(inbox)",
            name=op.f("tasks_inbox_read_check"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "run_id"],
            ["runs.tenant", "runs.id"],
            name=op.f("tasks_tenant_run_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("tasks_pkey")),
    )
    op.create_index(
        op.f("tasks_tenant_run_id_created_at_id_idx"),
        "tasks",
        ["tenant", "run_id", "created_at", "id"],
        unique=False,
    )
    op.create_index(
        "tasks_moving",
        "tasks",
        ["owner"],
        unique=False,
        postgresql_where=sa.text("status = 'running'"),
    )


def downgrade() -> None:
    op.drop_table("tasks")
    op.drop_index("runs_unread", table_name="runs")
    for counter in ("open_tasks", "unread_inputs"):
        op.drop_constraint(op.f(f"runs_{counter}_check"), "runs", type_="check")
        op.drop_column("runs", counter)


def _time(name: str, *, is_now: bool = False) -> sa.Column[object]:
    default = sa.text("now()") if is_now else None
    return sa.Column(name, sa.DateTime(timezone=True), server_default=default, nullable=not is_now)
