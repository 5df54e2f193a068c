"""The tables of threads, runs, tickets and events."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("tenant", "id", "version", name=op.f("agents_pkey")),
    )
    op.create_table(
        "blobs",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("bytes", postgresql.BYTEA(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("tenant", "sha256", name=op.f("blobs_pkey")),
    )
    op.create_table(
        "event_heads",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("next_seq", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.Uuid(as_uuid=False), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("tenant", "thread_id", name=op.f("event_heads_pkey")),
        postgresql_with={"fillfactor": "50"},
    )
    op.create_table(
        "events",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("from_seq", sa.BigInteger(), nullable=True),
        sa.Column("run_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("ts", sa.DateTime(timezone=True), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.CheckConstraint("seq >= 1 AND from_seq <= seq", name=op.f("events_seq_check")),
        sa.PrimaryKeyConstraint("tenant", "thread_id", "seq", name=op.f("events_pkey")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column(
            "body", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "(status IS NULL) = (body IS NULL)", name=op.f("idempotency_keys_answered_check")
        ),
        sa.PrimaryKeyConstraint(
            "tenant", "subject", "route", "key", name=op.f("idempotency_keys_pkey")
        ),
    )
    op.create_index(
        op.f("idempotency_keys_created_at_idx"), "idempotency_keys", ["created_at"], unique=False
    )
    op.create_table(
        "rules",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.Text(), nullable=False),
        sa.Column("pattern", sa.Text(), nullable=False),
        sa.Column("behavior", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "behavior IN ('allow', 'ask', 'deny')", name=op.f("rules_behavior_check")
        ),
        sa.CheckConstraint("scope IN ('run', 'thread', 'agent')", name=op.f("rules_scope_check")),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("rules_pkey")),
    )
    op.create_index(
        op.f("rules_tenant_scope_scope_id_idx"),
        "rules",
        ["tenant", "scope", "scope_id"],
        unique=False,
        postgresql_where=sa.text("revoked_at IS NULL"),
    )
    op.create_table(
        "threads",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("resource_id", sa.Text(), nullable=True),
        sa.Column("parent_thread_id", sa.Uuid(as_uuid=False), nullable=True),
        sa.Column(
            "metadata",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("state", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("next_message_seq", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("open_run_id", sa.Uuid(as_uuid=False), nullable=True),
        sa.Column("latest_run_id", sa.Uuid(as_uuid=False), nullable=True),
        sa.Column("queue_length", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint("next_message_seq >= 1", name=op.f("threads_next_message_seq_check")),
        sa.CheckConstraint("queue_length >= 0", name=op.f("threads_queue_length_check")),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("threads_pkey")),
        postgresql_with={"fillfactor": "80"},
    )
    op.create_index(
        op.f("threads_tenant_created_at_id_idx"),
        "threads",
        ["tenant", "created_at", "id"],
        unique=False,
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "heartbeat_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint("role IN ('all', 'api', 'worker')", name=op.f("workers_role_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("workers_pkey")),
        postgresql_with={"fillfactor": "50"},
    )
    op.create_table(
        "messages",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("visibility", sa.Text(), server_default=sa.text("'all'"), nullable=False),
        sa.Column("content", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "tool_calls", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column("tool_call_id", sa.Text(), nullable=True),
        sa.Column("produced_by_run", sa.Uuid(as_uuid=False), nullable=True),
        sa.Column("step_index", sa.Integer(), nullable=True),
        sa.Column(
            "ran_with", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "(role = 'tool') = (tool_call_id IS NOT NULL)", name=op.f("messages_tool_call_id_check")
        ),
        sa.CheckConstraint(
            "role IN ('system', 'user', 'assistant', 'tool')", name=op.f("messages_role_check")
        ),
        sa.CheckConstraint(
            "visibility IN ('all', 'internal')", name=op.f("messages_visibility_check")
        ),
        sa.CheckConstraint("seq >= 1", name=op.f("messages_seq_check")),
        sa.ForeignKeyConstraint(
            ["tenant", "thread_id"],
            ["threads.tenant", "threads.id"],
            name=op.f("messages_tenant_thread_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "thread_id", "seq", name=op.f("messages_pkey")),
        sa.UniqueConstraint(
            "tenant",
            "thread_id",
            "message_id",
            name=op.f("messages_tenant_thread_id_message_id_key"),
        ),
    )
    op.create_table(
        "runs",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("thread_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("agent_version", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("admitted", sa.Boolean(), nullable=False),
        sa.Column("waiting_reason", sa.Text(), nullable=True),
        sa.Column("waiting_message", sa.Text(), nullable=True),
        sa.Column(
            "termination", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column("final_output", sa.Text(), nullable=True),
        sa.Column("root_run_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("parent_run_id", sa.Uuid(as_uuid=False), nullable=True),
        sa.Column("parent_thread_id", sa.Uuid(as_uuid=False), nullable=True),
        sa.Column("parent_call_id", sa.Text(), nullable=True),
        sa.Column("depth", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("retry_of", sa.Uuid(as_uuid=False), nullable=True),
        sa.Column("request", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("request_digest", sa.Text(), nullable=False),
        sa.Column("input_from", sa.BigInteger(), nullable=True),
        sa.Column("input_to", sa.BigInteger(), nullable=True),
        sa.Column(
            "input_ids",
            postgresql.ARRAY(sa.Uuid(as_uuid=False)),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("output_from", sa.BigInteger(), nullable=True),
        sa.Column("output_to", sa.BigInteger(), nullable=True),
        sa.Column(
            "output_ids",
            postgresql.ARRAY(sa.Uuid(as_uuid=False)),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("steps", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "state", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column(
            "metadata",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("started_by", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("owner", sa.Uuid(as_uuid=False), nullable=True),
        sa.Column("losses", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested_by", sa.Text(), nullable=True),
        sa.Column("cancel_reason", sa.Text(), nullable=True),
        sa.Column("traceparent", sa.Text(), nullable=True),
        sa.Column("dispatch_id", sa.Text(), nullable=True),
        sa.Column("events_from", sa.BigInteger(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "(status = 'done') = (finished_at IS NOT NULL)", name=op.f("runs_finished_check")
        ),
        sa.CheckConstraint(
            "(status = 'done') = (termination IS NOT NULL)", name=op.f("runs_termination_check")
        ),
        sa.CheckConstraint(
            "(status = 'waiting') = (waiting_reason IS NOT NULL)", name=op.f("runs_waiting_check")
        ),
        sa.CheckConstraint(
            "admitted OR status IN ('created', 'done')", name=op.f("runs_admitted_check")
        ),
        sa.CheckConstraint("owner IS NULL OR status = 'running'", name=op.f("runs_owner_check")),
        sa.CheckConstraint(
            "status IN ('created', 'running', 'waiting', 'done')", name=op.f("runs_status_check")
        ),
        sa.CheckConstraint(
            "status NOT IN ('running', 'waiting') OR attempt > 0", name=op.f("runs_attempt_check")
        ),
        sa.CheckConstraint(
            "waiting_reason IN ('tool_permission', 'user_input', 'background_tasks', 'external_event', 'rate_limit', 'manual_pause', 'agent_version_unavailable')",
            name=op.f("runs_waiting_reason_check"),
        ),
        sa.CheckConstraint(
            "(input_from IS NULL) = (input_to IS NULL)", name=op.f("runs_input_check")
        ),
        sa.CheckConstraint(
            "(output_from IS NULL) = (output_to IS NULL)", name=op.f("runs_output_check")
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "thread_id"],
            ["threads.tenant", "threads.id"],
            name=op.f("runs_tenant_thread_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("runs_pkey")),
        postgresql_with={"fillfactor": "80"},
    )
    op.create_index(
        "runs_in_line",
        "runs",
        ["tenant", "thread_id", "events_from"],
        unique=False,
        postgresql_where=sa.text("status = 'created' AND NOT admitted"),
    )
    op.create_index(
        "runs_moving",
        "runs",
        ["owner"],
        unique=False,
        postgresql_where=sa.text("admitted AND status IN ('created', 'running')"),
    )
    op.create_index(
        "runs_one_per_thread",
        "runs",
        ["tenant", "thread_id"],
        unique=True,
        postgresql_where=sa.text("admitted AND status <> 'done'"),
    )
    op.create_index(
        op.f("runs_tenant_created_at_id_idx"), "runs", ["tenant", "created_at", "id"], unique=False
    )
    op.create_index(
        op.f("runs_tenant_thread_id_created_at_id_idx"),
        "runs",
        ["tenant", "thread_id", "created_at", "id"],
        unique=False,
    )
    op.create_index(
        "runs_waiting_for_version",
        "runs",
        ["agent_version"],
        unique=False,
        postgresql_where=sa.text("waiting_reason = 'agent_version_unavailable'"),
    )
    op.create_table(
        "inputs",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("thread_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("run_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("message", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("consumed_seq", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(status = 'consumed') = (consumed_seq IS NOT NULL)",
            name=op.f("inputs_consumed_seq_check"),
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'consumed', 'retracted')", name=op.f("inputs_status_check")
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "run_id"],
            ["runs.tenant", "runs.id"],
            name=op.f("inputs_tenant_run_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("inputs_pkey")),
    )
    op.create_index(
        op.f("inputs_tenant_run_id_position_idx"),
        "inputs",
        ["tenant", "run_id", "position"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_table(
        "tickets",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("run_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("thread_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("ticket_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=True),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("tool_name", sa.Text(), nullable=False),
        sa.Column("arguments", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("args_digest", sa.Text(), nullable=False),
        sa.Column("resume_mode", sa.Text(), nullable=False),
        sa.Column("allowed_actions", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column(
            "response_schema",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=True,
        ),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column(
            "evidence", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column("status", sa.Text(), server_default=sa.text("'open'"), nullable=False),
        sa.Column("decision_id", sa.Text(), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("on_expiry", sa.Text(), nullable=True),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "(status = 'decided') = (decision_id IS NOT NULL)",
            name=op.f("tickets_decision_id_check"),
        ),
        sa.CheckConstraint(
            "applied_at IS NULL OR status IN ('decided', 'expired')",
            name=op.f("tickets_applied_at_check"),
        ),
        sa.CheckConstraint(
            "kind IN ('approval', 'input', 'frontend', 'outcome_unknown', 'limit', 'auth', 'child')",
            name=op.f("tickets_kind_check"),
        ),
        sa.CheckConstraint(
            "on_expiry IN ('reject', 'cancel_run', 'keep')", name=op.f("tickets_on_expiry_check")
        ),
        sa.CheckConstraint(
            "resume_mode IN ('replay_tool_call', 'use_decision_as_tool_result', 'pass_decision_to_tool')",
            name=op.f("tickets_resume_mode_check"),
        ),
        sa.CheckConstraint(
            "status IN ('open', 'decided', 'expired', 'void')", name=op.f("tickets_status_check")
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "run_id"],
            ["runs.tenant", "runs.id"],
            name=op.f("tickets_tenant_run_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("tickets_pkey")),
    )
    op.create_index(
        "tickets_one_open_per_name",
        "tickets",
        ["tenant", "run_id", "ticket_id"],
        unique=True,
        postgresql_where=sa.text("status = 'open'"),
    )
    op.create_index(
        op.f("tickets_tenant_run_id_idx"), "tickets", ["tenant", "run_id"], unique=False
    )
    op.create_index(
        op.f("tickets_tenant_status_created_at_id_idx"),
        "tickets",
        ["tenant", "status", "created_at", "id"],
        unique=False,
    )
    op.create_index(
        "tickets_unapplied",
        "tickets",
        ["updated_at"],
        unique=False,
        postgresql_where=sa.text("status = 'decided' AND applied_at IS NULL"),
    )
    op.create_table(
        "tool_calls",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arguments", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "run_with", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("effect", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "effect IN ('read', 'idempotent', 'unsafe')", name=op.f("tool_calls_effect_check")
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'suspended', 'succeeded', 'failed', 'cancelled')",
            name=op.f("tool_calls_status_check"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "run_id"],
            ["runs.tenant", "runs.id"],
            name=op.f("tool_calls_tenant_run_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "tenant", "run_id", "step_index", "call_id", name=op.f("tool_calls_pkey")
        ),
    )
    op.create_table(
        "decisions",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("ticket", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("decision_id", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column(
            "payload", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("effect", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "action IN ('approve', 'edit', 'respond', 'reject', 'cancel')",
            name=op.f("decisions_action_check"),
        ),
        sa.CheckConstraint(
            "effect IN ('decided', 'voted', 'refused')", name=op.f("decisions_effect_check")
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "ticket"],
            ["tickets.tenant", "tickets.id"],
            name=op.f("decisions_tenant_ticket_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "ticket", "decision_id", name=op.f("decisions_pkey")),
    )
    op.create_index(
        "decisions_one_winner",
        "decisions",
        ["tenant", "ticket"],
        unique=True,
        postgresql_where=sa.text("effect = 'decided'"),
    )


def downgrade() -> None:
    op.drop_index(
        "decisions_one_winner",
        table_name="decisions",
        postgresql_where=sa.text("effect = 'decided'"),
    )
    op.drop_table("decisions")
    op.drop_table("tool_calls")
    op.drop_index(
        "tickets_unapplied",
        table_name="tickets",
        postgresql_where=sa.text("status = 'decided' AND applied_at IS NULL"),
    )
    op.drop_index(op.f("tickets_tenant_status_created_at_id_idx"), table_name="tickets")
    op.drop_index(op.f("tickets_tenant_run_id_idx"), table_name="tickets")
    op.drop_index(
        "tickets_one_open_per_name",
        table_name="tickets",
        postgresql_where=sa.text("status = 'open'"),
    )
    op.drop_table("tickets")
    op.drop_index(
        op.f("inputs_tenant_run_id_position_idx"),
        table_name="inputs",
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.drop_table("inputs")
    op.drop_index(
        "runs_waiting_for_version",
        table_name="runs",
        postgresql_where=sa.text("waiting_reason = 'agent_version_unavailable'"),
    )
    op.drop_index(op.f("runs_tenant_thread_id_created_at_id_idx"), table_name="runs")
    op.drop_index(op.f("runs_tenant_created_at_id_idx"), table_name="runs")
    op.drop_index(
        "runs_one_per_thread",
        table_name="runs",
        postgresql_where=sa.text("admitted AND status <> 'done'"),
    )
    op.drop_index(
        "runs_moving",
        table_name="runs",
        postgresql_where=sa.text("admitted AND status IN ('created', 'running')"),
    )
    op.drop_index(
        "runs_in_line",
        table_name="runs",
        postgresql_where=sa.text("status = 'created' AND NOT admitted"),
    )
    op.drop_table("runs")
    op.drop_table("messages")
    op.drop_table("workers")
    op.drop_index(op.f("threads_tenant_created_at_id_idx"), table_name="threads")
    op.drop_table("threads")
    op.drop_index(
        op.f("rules_tenant_scope_scope_id_idx"),
        table_name="rules",
        postgresql_where=sa.text("revoked_at IS NULL"),
    )
    op.drop_table("rules")
    op.drop_index(op.f("idempotency_keys_created_at_idx"), table_name="idempotency_keys")
    op.drop_table("idempotency_keys")
    op.drop_table("events")
    op.drop_table("event_heads")
    op.drop_table("blobs")
    op.drop_table("agents")
