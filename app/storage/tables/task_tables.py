"""The table of background tasks."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.domain.children.background_tasks import TaskStatus
from app.domain.tools.tool_calls import Effect
from app.storage.tables.columns import NOW, TIME, UUID, belongs_to, metadata, one_of

tasks = Table(
    "tasks",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("run_id", UUID, nullable=False),
    Column("thread_id", UUID, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("agent_version", Text, nullable=False),
    Column("call_id", Text, nullable=False),
    Column("tool_name", Text, nullable=False),
    Column("arguments", JSONB, nullable=False),
    Column("effect", Text, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'running'")),
    Column("result", JSONB(none_as_null=True)),
    Column("error", Text),
    Column("inbox", JSONB, nullable=False, server_default=text("'[]'")),
    Column("inbox_read", Integer, nullable=False, server_default=text("0")),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("owner", UUID),
    Column("losses", Integer, nullable=False, server_default=text("0")),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    Column("started_at", TIME),
    Column("finished_at", TIME),
    Column("reported_at", TIME),
    Column("updated_at", TIME, nullable=False, server_default=NOW),
    Column("child", JSONB(none_as_null=True)),
    Column("child_run_id", UUID),
    PrimaryKeyConstraint("tenant", "id"),
    belongs_to("runs", "run_id"),
    one_of("effect", Effect),
    one_of("status", TaskStatus),
    CheckConstraint("(status = 'running') = (finished_at IS NULL)", name="finished"),
    CheckConstraint("(status = 'failed') = (error IS NOT NULL)", name="error"),
    CheckConstraint("result IS NULL OR status = 'completed'", name="result"),
    CheckConstraint("owner IS NULL OR status = 'running'", name="owner"),
    CheckConstraint("(attempt = 0) = (started_at IS NULL)", name="attempt"),
    CheckConstraint("reported_at IS NULL OR status <> 'running'", name="reported"),
    CheckConstraint("inbox_read BETWEEN 0 AND jsonb_array_length(inbox)", name="inbox_read"),
    CheckConstraint("(child IS NULL) = (child_run_id IS NULL)", name="child"),
    CheckConstraint("child IS NULL OR owner IS NULL", name="child_owner"),
    Index(None, "tenant", "run_id", "created_at", "id"),
    Index(
        "tasks_of_children",
        "tenant",
        "child_run_id",
        postgresql_where=text("child_run_id IS NOT NULL"),
    ),
    # For the sweeper: tasks that a worker should execute.
    Index("tasks_moving", "owner", postgresql_where=text("status = 'running'")),
)
