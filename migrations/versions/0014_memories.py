"""Memories that agents keep across runs, the writes of tool calls, and the audit of deletions."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0014_memories"
down_revision = "0013_mcp_tokens"
branch_labels = None
depends_on = None

is_additive = True

_uuid = sa.Uuid(as_uuid=False)
_SCOPES = "scope IN ('subject', 'user', 'agent', 'tenant')"


def _time(name: str) -> sa.Column[object]:
    now = sa.text("now()")
    return sa.Column(name, sa.DateTime(timezone=True), server_default=now, nullable=False)


def upgrade() -> None:
    op.create_table(
        "memories",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", _uuid, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", postgresql.JSONB(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("words", postgresql.TSVECTOR(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("run_id", _uuid, nullable=True),
        sa.Column("saved_by", sa.Text(), nullable=False),
        _time("created_at"),
        _time("updated_at"),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("memories_pkey")),
        sa.UniqueConstraint(
            "tenant", "scope", "subject", "key", name=op.f("memories_tenant_scope_subject_key_key")
        ),
        sa.CheckConstraint(_SCOPES, name=op.f("memories_scope_check")),
    )
    op.create_index(
        op.f("memories_tenant_created_at_id_idx"), "memories", ["tenant", "created_at", "id"]
    )
    op.create_index("memories_by_change", "memories", ["updated_at"])
    op.create_index("memories_words", "memories", ["words"], postgresql_using="gin")
    op.create_table(
        "memory_writes",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", _uuid, nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint(
            "tenant", "run_id", "idempotency_key", "digest", name=op.f("memory_writes_pkey")
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "run_id"],
            ["runs.tenant", "runs.id"],
            ondelete="CASCADE",
            name=op.f("memory_writes_tenant_run_id_fkey"),
        ),
    )
    op.create_table(
        "memory_deletions",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", _uuid, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("deleted_by", sa.Text(), nullable=False),
        sa.Column("run_id", _uuid, nullable=True),
        _time("created_at"),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("memory_deletions_pkey")),
        sa.CheckConstraint(_SCOPES, name=op.f("memory_deletions_scope_check")),
    )
    op.create_index(
        op.f("memory_deletions_tenant_created_at_id_idx"),
        "memory_deletions",
        ["tenant", "created_at", "id"],
    )


def downgrade() -> None:
    for table in ("memory_deletions", "memory_writes", "memories"):
        op.drop_table(table)
