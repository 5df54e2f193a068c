"""The whole schema: Holdfast's tables, and those of pgqueuer 1.6 in the schema `pgq`."""

from pathlib import Path

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

revision = "0001_baseline"
down_revision = None
branch_labels = None
depends_on = None

_QUEUE = Path(__file__).with_name("pgqueuer_1_6.sql")


def upgrade() -> None:
    _create_agents()
    _create_event_heads()
    _create_events()
    _create_idempotency_keys()
    _create_retention()
    _create_rules()
    _create_schema_revisions()
    _create_server_secrets()
    _create_signals()
    _create_threads()
    _create_ticket_feed_heads()
    _create_workers()
    _create_messages()
    _create_rollbacks()
    _create_runs()
    _create_child_tickets()
    _create_signal_tickets()
    _create_failed_followups()
    _create_inputs()
    _create_pending_run_ends()
    _create_tasks()
    _create_tickets()
    _create_tool_calls()
    _create_decisions()
    _create_ticket_feed()
    op.run_async(_execute_script, _QUEUE.read_text())


def downgrade() -> None:
    op.execute("DROP SCHEMA pgq CASCADE")
    op.drop_table("ticket_feed")
    op.drop_table("decisions")
    op.drop_table("tool_calls")
    op.drop_table("tickets")
    op.drop_table("tasks")
    op.drop_table("pending_run_ends")
    op.drop_table("inputs")
    op.drop_table("failed_followups")
    op.drop_table("signal_tickets")
    op.drop_table("child_tickets")
    op.drop_table("runs")
    op.drop_table("rollbacks")
    op.drop_table("messages")
    op.drop_table("workers")
    op.drop_table("ticket_feed_heads")
    op.drop_table("threads")
    op.drop_table("signals")
    op.drop_table("server_secrets")
    op.drop_table("schema_revisions")
    op.drop_table("rules")
    op.drop_table("retention")
    op.drop_table("idempotency_keys")
    op.drop_table("events")
    op.drop_table("event_heads")
    op.drop_table("agents")


async def _execute_script(connection: AsyncConnection, script: str) -> None:
    """Run a script of several commands. A prepared statement holds only one."""
    proxy = await connection.get_raw_connection()
    driver = proxy.driver_connection
    assert driver is not None
    await driver.execute(script)


def _create_agents() -> None:
    op.create_table(
        "agents",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSONB(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("tenant", "id", "version", name=op.f("agents_pkey")),
    )


def _create_event_heads() -> None:
    op.create_table(
        "event_heads",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Uuid(), nullable=False),
        sa.Column("next_seq", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.Uuid()),
        sa.Column("attempt", sa.Integer()),
        sa.Column("pruned_to", sa.BigInteger()),
        sa.PrimaryKeyConstraint("tenant", "thread_id", name=op.f("event_heads_pkey")),
        postgresql_with={"fillfactor": "50"},
    )


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("from_seq", sa.BigInteger()),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("step", sa.Integer()),
        sa.Column("ts", sa.DateTime(timezone=True), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.CheckConstraint("seq >= 1 AND from_seq <= seq", name=op.f("events_seq_check")),
        sa.PrimaryKeyConstraint("tenant", "thread_id", "seq", name=op.f("events_pkey")),
    )


def _create_idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("location", sa.Text()),
        sa.PrimaryKeyConstraint(
            "tenant", "subject", "route", "key", name=op.f("idempotency_keys_pkey")
        ),
    )
    op.create_index(op.f("idempotency_keys_created_at_idx"), "idempotency_keys", ["created_at"])


def _create_retention() -> None:
    op.create_table(
        "retention",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.PrimaryKeyConstraint("job", name=op.f("retention_pkey")),
    )


def _create_rules() -> None:
    op.create_table(
        "rules",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("pattern", sa.Text(), nullable=False),
        sa.Column("arguments", postgresql.JSONB()),
        sa.Column("behavior", sa.Text(), nullable=False),
        sa.Column("ticket", sa.Uuid()),
        sa.Column("reason", sa.Text()),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.Column("revoked_by", sa.Text()),
        sa.CheckConstraint(
            "behavior IN ('allow', 'ask', 'deny')", name=op.f("rules_behavior_check")
        ),
        sa.CheckConstraint("scope IN ('run', 'thread', 'agent')", name=op.f("rules_scope_check")),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("rules_pkey")),
    )
    op.create_index(op.f("rules_tenant_created_at_id_idx"), "rules", ["tenant", "created_at", "id"])
    op.create_index(
        op.f("rules_tenant_scope_scope_id_idx"),
        "rules",
        ["tenant", "scope", "scope_id"],
        postgresql_where=sa.text("revoked_at IS NULL"),
    )


def _create_schema_revisions() -> None:
    """Which revisions the version before can run on; see `app/storage/schema_revision.py`."""
    op.create_table(
        "schema_revisions",
        sa.Column("revision", sa.Text(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=False),
        sa.Column("is_additive", sa.Boolean(), nullable=False),
        sa.Column(
            "migrated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("revision", name=op.f("schema_revisions_pkey")),
    )


def _create_server_secrets() -> None:
    op.create_table(
        "server_secrets",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("server_secrets_pkey")),
    )


def _create_signals() -> None:
    op.create_table(
        "signals",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("payload", postgresql.JSONB()),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("sent_by", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("response_status", sa.Text()),
        sa.Column("kept_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "response_status IN ('kept', 'answered')", name=op.f("signals_response_status_check")
        ),
        sa.CheckConstraint(
            "status = 'delivering' OR response_status IS NOT NULL",
            name=op.f("signals_answered_check"),
        ),
        sa.CheckConstraint(
            "status IN ('delivering', 'kept', 'answered')", name=op.f("signals_status_check")
        ),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("signals_pkey")),
    )
    op.create_index(op.f("signals_created_at_idx"), "signals", ["created_at"])
    op.create_index(
        "signals_kept",
        "signals",
        ["tenant", "name", "key", "created_at"],
        postgresql_where=sa.text("status = 'kept'"),
    )


def _create_threads() -> None:
    op.create_table(
        "threads",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("title", sa.Text()),
        sa.Column("resource_id", sa.Text()),
        sa.Column("parent_thread_id", sa.Uuid()),
        sa.Column("metadata", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("state", postgresql.JSONB()),
        sa.Column("next_message_seq", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("open_run_id", sa.Uuid()),
        sa.Column("latest_run_id", sa.Uuid()),
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
        "threads_metadata",
        "threads",
        ["metadata"],
        postgresql_using="gin",
        postgresql_ops={"metadata": "jsonb_path_ops"},
        postgresql_where=sa.text("metadata <> '{}'"),
    )
    op.create_index(
        op.f("threads_tenant_created_at_id_idx"), "threads", ["tenant", "created_at", "id"]
    )


def _create_ticket_feed_heads() -> None:
    op.create_table(
        "ticket_feed_heads",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("next_number", sa.BigInteger(), nullable=False),
        sa.Column("pruned_to", sa.BigInteger()),
        sa.PrimaryKeyConstraint("tenant", name=op.f("ticket_feed_heads_pkey")),
    )


def _create_workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.Uuid(), nullable=False),
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


def _create_messages() -> None:
    op.create_table(
        "messages",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.Uuid(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("visibility", sa.Text(), server_default=sa.text("'all'"), nullable=False),
        sa.Column("content", postgresql.JSONB(), nullable=False),
        sa.Column("tool_calls", postgresql.JSONB()),
        sa.Column("tool_call_id", sa.Text()),
        sa.Column("produced_by_run", sa.Uuid()),
        sa.Column("step_index", sa.Integer()),
        sa.Column("edited_arguments", postgresql.JSONB()),
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


def _create_rollbacks() -> None:
    op.create_table(
        "rollbacks",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Uuid(), nullable=False),
        sa.Column("from_seq", sa.BigInteger(), nullable=False),
        sa.Column("to_seq", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("by_run_id", sa.Uuid(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "from_seq >= 1 AND from_seq <= to_seq", name=op.f("rollbacks_range_check")
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "thread_id"],
            ["threads.tenant", "threads.id"],
            name=op.f("rollbacks_tenant_thread_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "thread_id", "from_seq", name=op.f("rollbacks_pkey")),
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("thread_id", sa.Uuid(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("agent_version", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("admitted", sa.Boolean(), nullable=False),
        sa.Column("waiting_reason", sa.Text()),
        sa.Column("waiting_message", sa.Text()),
        sa.Column("waiting_until", sa.DateTime(timezone=True)),
        sa.Column("termination", postgresql.JSONB()),
        sa.Column("final_output", sa.Text()),
        sa.Column("root_run_id", sa.Uuid(), nullable=False),
        sa.Column("parent_run_id", sa.Uuid()),
        sa.Column("parent_thread_id", sa.Uuid()),
        sa.Column("parent_call_id", sa.Text()),
        sa.Column("depth", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("retry_of", sa.Uuid()),
        sa.Column("request", postgresql.JSONB(), nullable=False),
        sa.Column("request_digest", sa.Text(), nullable=False),
        sa.Column("input_from", sa.BigInteger()),
        sa.Column("input_to", sa.BigInteger()),
        sa.Column(
            "input_ids", postgresql.ARRAY(sa.Uuid()), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column("output_from", sa.BigInteger()),
        sa.Column("output_to", sa.BigInteger()),
        sa.Column(
            "output_ids",
            postgresql.ARRAY(sa.Uuid()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("steps", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("state", postgresql.JSONB()),
        sa.Column("metadata", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("started_by", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("owner", sa.Uuid()),
        sa.Column("losses", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True)),
        sa.Column("cancel_requested_by", sa.Text()),
        sa.Column("cancel_reason", sa.Text()),
        sa.Column("traceparent", sa.Text()),
        sa.Column("dispatch_id", sa.Text()),
        sa.Column("events_from", sa.BigInteger(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("lost_seconds", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("unread_inputs", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("open_tasks", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("rolled_back_by", sa.Uuid()),
        sa.Column("thread_state_before", postgresql.JSONB()),
        sa.Column("pause_requested_at", sa.DateTime(timezone=True)),
        sa.Column("pause_requested_by", sa.Text()),
        sa.Column("pause_reason", sa.Text()),
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
            "(waiting_until IS NOT NULL) = (waiting_reason IS NOT DISTINCT FROM 'rate_limit')",
            name=op.f("runs_waiting_until_check"),
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
            "waiting_reason IN ('tool_permission', 'user_input', 'background_tasks', 'external_event', 'rate_limit', 'manual_pause', 'agent_version_unavailable', 'child_runs')",
            name=op.f("runs_waiting_reason_check"),
        ),
        sa.CheckConstraint(
            "(input_from IS NULL) = (input_to IS NULL)", name=op.f("runs_input_check")
        ),
        sa.CheckConstraint(
            "(output_from IS NULL) = (output_to IS NULL)", name=op.f("runs_output_check")
        ),
        sa.CheckConstraint("open_tasks >= 0", name=op.f("runs_open_tasks_check")),
        sa.CheckConstraint("unread_inputs >= 0", name=op.f("runs_unread_inputs_check")),
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
        "runs_ended_by_code",
        "runs",
        ["tenant", sa.literal_column("(termination ->> 'code')"), "created_at", "id"],
        postgresql_where=sa.text("(termination ->> 'code') IS NOT NULL"),
    )
    op.create_index(
        "runs_finished",
        "runs",
        ["finished_at", "tenant", "id"],
        postgresql_where=sa.text("status = 'done'"),
    )
    op.create_index(
        "runs_moving",
        "runs",
        ["owner"],
        postgresql_where=sa.text("admitted AND status IN ('created', 'running')"),
    )
    op.create_index(
        "runs_of_parents",
        "runs",
        ["tenant", "parent_run_id"],
        postgresql_where=sa.text("parent_run_id IS NOT NULL"),
    )
    op.create_index(
        "runs_one_per_thread",
        "runs",
        ["tenant", "thread_id"],
        unique=True,
        postgresql_where=sa.text("admitted AND status <> 'done'"),
    )
    op.create_index(
        "runs_queued",
        "runs",
        ["tenant", "thread_id", "events_from"],
        postgresql_where=sa.text("status = 'created' AND NOT admitted"),
    )
    op.create_index(
        "runs_rate_limited",
        "runs",
        ["waiting_until"],
        postgresql_where=sa.text("waiting_reason = 'rate_limit'"),
    )
    op.create_index(
        "runs_waiting_to_be_cancelled",
        "runs",
        ["updated_at"],
        postgresql_where=sa.text("status = 'waiting' AND cancel_requested_at IS NOT NULL"),
    )
    op.create_index(
        "runs_resumed",
        "runs",
        ["updated_at"],
        postgresql_where=sa.text("waiting_reason = 'manual_pause' AND pause_requested_at IS NULL"),
    )
    op.create_index(op.f("runs_tenant_created_at_id_idx"), "runs", ["tenant", "created_at", "id"])
    op.create_index(
        op.f("runs_tenant_thread_id_created_at_id_idx"),
        "runs",
        ["tenant", "thread_id", "created_at", "id"],
    )
    op.create_index(
        "runs_to_delete",
        "runs",
        ["updated_at"],
        postgresql_where=sa.text(
            "status = 'done' AND parent_run_id IS NOT NULL AND (request ->> 'keep') = 'false'"
        ),
    )
    op.create_index(
        "runs_unread",
        "runs",
        ["updated_at"],
        postgresql_where=sa.text("waiting_reason = 'background_tasks' AND unread_inputs > 0"),
    )
    op.create_index(
        "runs_waiting_for_version",
        "runs",
        ["agent_version"],
        postgresql_where=sa.text("waiting_reason = 'agent_version_unavailable'"),
    )


def _create_child_tickets() -> None:
    """Tickets of runs below a run, as the run's stream shows them."""
    op.create_table(
        "child_tickets",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("ticket", sa.Uuid(), nullable=False),
        sa.Column("via_run_id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "status IN ('open', 'decided', 'expired', 'void')",
            name=op.f("child_tickets_status_check"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "run_id"],
            ["runs.tenant", "runs.id"],
            name=op.f("child_tickets_tenant_run_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "run_id", "ticket", name=op.f("child_tickets_pkey")),
    )
    op.create_index(
        "child_tickets_open",
        "child_tickets",
        ["tenant", "ticket"],
        postgresql_where=sa.text("status = 'open'"),
    )


def _create_signal_tickets() -> None:
    op.create_table(
        "signal_tickets",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("signal_id", sa.Text(), nullable=False),
        sa.Column("ticket", sa.Uuid(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("thread_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text()),
        sa.Column("waited", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "(outcome = 'payload_mismatch') = (problem IS NOT NULL)",
            name=op.f("signal_tickets_problem_check"),
        ),
        sa.CheckConstraint(
            "outcome IN ('pending', 'answered', 'payload_mismatch', 'already_decided', 'expired', 'void')",
            name=op.f("signal_tickets_outcome_check"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "signal_id"],
            ["signals.tenant", "signals.id"],
            name=op.f("signal_tickets_tenant_signal_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "signal_id", "ticket", name=op.f("signal_tickets_pkey")),
    )
    op.create_index(
        op.f("signal_tickets_tenant_ticket_idx"), "signal_tickets", ["tenant", "ticket"]
    )


def _create_failed_followups() -> None:
    op.create_table(
        "failed_followups",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("about", sa.Uuid(), nullable=False),
        sa.Column("on_behalf_of", sa.Uuid(), nullable=False),
        sa.Column("tries", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column(
            "failed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("given_up_at", sa.DateTime(timezone=True)),
        sa.CheckConstraint("tries >= 1", name=op.f("failed_followups_tries_check")),
        sa.ForeignKeyConstraint(
            ["tenant", "on_behalf_of"],
            ["runs.tenant", "runs.id"],
            name=op.f("failed_followups_tenant_on_behalf_of_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "name", "about", name=op.f("failed_followups_pkey")),
    )
    op.create_index(
        op.f("failed_followups_tenant_on_behalf_of_idx"),
        "failed_followups",
        ["tenant", "on_behalf_of"],
    )


def _create_inputs() -> None:
    op.create_table(
        "inputs",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("thread_id", sa.Uuid(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("message", postgresql.JSONB(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("consumed_seq", sa.BigInteger()),
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
    op.create_index(op.f("inputs_tenant_run_id_idx"), "inputs", ["tenant", "run_id"])
    op.create_index(
        op.f("inputs_tenant_run_id_position_idx"),
        "inputs",
        ["tenant", "run_id", "position"],
        postgresql_where=sa.text("status = 'pending'"),
    )


def _create_pending_run_ends() -> None:
    op.create_table(
        "pending_run_ends",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("log_end", sa.BigInteger(), nullable=False),
        sa.Column("thread_state", postgresql.JSONB(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "run_id"],
            ["runs.tenant", "runs.id"],
            name=op.f("pending_run_ends_tenant_run_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "run_id", name=op.f("pending_run_ends_pkey")),
    )
    op.create_index(op.f("pending_run_ends_created_at_idx"), "pending_run_ends", ["created_at"])


def _create_tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("thread_id", sa.Uuid(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("agent_version", sa.Text(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("tool_name", sa.Text(), nullable=False),
        sa.Column("arguments", postgresql.JSONB(), nullable=False),
        sa.Column("effect", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'running'"), nullable=False),
        sa.Column("result", postgresql.JSONB()),
        sa.Column("error", sa.Text()),
        sa.Column("inbox", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("inbox_read", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("owner", sa.Uuid()),
        sa.Column("losses", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("reported_at", sa.DateTime(timezone=True)),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("child", postgresql.JSONB()),
        sa.Column("child_run_id", sa.Uuid()),
        sa.CheckConstraint(
            "(status = 'failed') = (error IS NOT NULL)", name=op.f("tasks_error_check")
        ),
        sa.CheckConstraint(
            "(status = 'running') = (finished_at IS NULL)", name=op.f("tasks_finished_check")
        ),
        sa.CheckConstraint(
            "effect IN ('read', 'idempotent', 'unsafe')", name=op.f("tasks_effect_check")
        ),
        sa.CheckConstraint("owner IS NULL OR status = 'running'", name=op.f("tasks_owner_check")),
        sa.CheckConstraint(
            "reported_at IS NULL OR status <> 'running'", name=op.f("tasks_reported_check")
        ),
        sa.CheckConstraint(
            "result IS NULL OR status = 'completed'", name=op.f("tasks_result_check")
        ),
        sa.CheckConstraint(
            "status IN ('running', 'completed', 'failed', 'cancelled')",
            name=op.f("tasks_status_check"),
        ),
        sa.CheckConstraint(
            "(attempt = 0) = (started_at IS NULL)", name=op.f("tasks_attempt_check")
        ),
        sa.CheckConstraint(
            "(child IS NULL) = (child_run_id IS NULL)", name=op.f("tasks_child_check")
        ),
        sa.CheckConstraint("child IS NULL OR owner IS NULL", name=op.f("tasks_child_owner_check")),
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
        "tasks_moving", "tasks", ["owner"], postgresql_where=sa.text("status = 'running'")
    )
    op.create_index(
        "tasks_of_children",
        "tasks",
        ["tenant", "child_run_id"],
        postgresql_where=sa.text("child_run_id IS NOT NULL"),
    )
    op.create_index(
        op.f("tasks_tenant_run_id_created_at_id_idx"),
        "tasks",
        ["tenant", "run_id", "created_at", "id"],
    )


def _create_tickets() -> None:
    op.create_table(
        "tickets",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("thread_id", sa.Uuid(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("ticket_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("call_id", sa.Text()),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("tool_name", sa.Text(), nullable=False),
        sa.Column("arguments", postgresql.JSONB(), nullable=False),
        sa.Column("args_digest", sa.Text(), nullable=False),
        sa.Column("resume_mode", sa.Text(), nullable=False),
        sa.Column("allowed_actions", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("response_schema", postgresql.JSONB()),
        sa.Column("reason", sa.Text()),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("evidence", postgresql.JSONB()),
        sa.Column("event_name", sa.Text()),
        sa.Column("event_key", sa.Text()),
        sa.Column("event_number", sa.Integer()),
        sa.Column("status", sa.Text(), server_default=sa.text("'open'"), nullable=False),
        sa.Column("decision_id", sa.Text()),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.Column("on_expiry", sa.Text()),
        sa.Column("remind_at", sa.DateTime(timezone=True)),
        sa.Column("reminders", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("approvers", postgresql.JSONB()),
        sa.Column("applied_at", sa.DateTime(timezone=True)),
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
            "(kind = 'event') = (event_name IS NOT NULL) AND (event_name IS NULL) = (event_key IS NULL) AND (event_name IS NULL) = (event_number IS NULL)",
            name=op.f("tickets_event_check"),
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
            "kind IN ('approval', 'input', 'frontend', 'outcome_unknown', 'limit', 'auth', 'child', 'event')",
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
        "tickets_due",
        "tickets",
        ["expires_at"],
        postgresql_where=sa.text("status = 'open' AND on_expiry <> 'keep'"),
    )
    op.create_index(
        "tickets_of_children",
        "tickets",
        ["tenant", "run_id"],
        postgresql_where=sa.text("kind = 'child' AND status = 'open'"),
    )
    op.create_index(
        "tickets_of_remotes",
        "tickets",
        ["created_at"],
        postgresql_where=sa.text(
            "status = 'open' AND (evidence ->> 'remote_question') IS NOT NULL"
        ),
    )
    op.create_index(
        "tickets_one_open_per_name",
        "tickets",
        ["tenant", "run_id", "ticket_id"],
        unique=True,
        postgresql_where=sa.text("status = 'open'"),
    )
    op.create_index(
        op.f("tickets_tenant_agent_id_tool_name_created_at_idx"),
        "tickets",
        ["tenant", "agent_id", "tool_name", "created_at"],
    )
    op.create_index(
        op.f("tickets_tenant_created_at_id_idx"), "tickets", ["tenant", "created_at", "id"]
    )
    op.create_index(op.f("tickets_tenant_run_id_idx"), "tickets", ["tenant", "run_id"])
    op.create_index(
        op.f("tickets_tenant_status_created_at_id_idx"),
        "tickets",
        ["tenant", "status", "created_at", "id"],
    )
    op.create_index(
        "tickets_to_remind_of",
        "tickets",
        ["remind_at"],
        postgresql_where=sa.text("status = 'open' AND remind_at IS NOT NULL"),
    )
    op.create_index(
        "tickets_unapplied",
        "tickets",
        ["updated_at"],
        postgresql_where=sa.text("status IN ('decided', 'expired') AND applied_at IS NULL"),
    )
    op.create_index(
        "tickets_waiting_for_events",
        "tickets",
        ["tenant", "event_name", "event_key"],
        postgresql_where=sa.text("kind = 'event' AND status = 'open'"),
    )


def _create_tool_calls() -> None:
    op.create_table(
        "tool_calls",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arguments", postgresql.JSONB(), nullable=False),
        sa.Column("edited_arguments", postgresql.JSONB()),
        sa.Column("unreported_outcome", postgresql.JSONB()),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("effect", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Uuid()),
        sa.Column("started_at", sa.DateTime(timezone=True)),
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


def _create_decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("ticket", sa.Uuid(), nullable=False),
        sa.Column("decision_id", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("payload", postgresql.JSONB()),
        sa.Column("reason", sa.Text()),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("effect", sa.Text(), nullable=False),
        sa.Column("refusal", sa.Text()),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "(effect = 'refused') = (refusal IS NOT NULL)", name=op.f("decisions_refusal_check")
        ),
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


def _create_ticket_feed() -> None:
    op.create_table(
        "ticket_feed",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("number", sa.BigInteger()),
        sa.Column("ticket", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("decision_id", sa.Text()),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.CheckConstraint(
            "kind IN ('opened', 'voted', 'decided', 'reminder', 'expired', 'void')",
            name=op.f("ticket_feed_kind_check"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "ticket"],
            ["tickets.tenant", "tickets.id"],
            name=op.f("ticket_feed_tenant_ticket_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("ticket_feed_pkey")),
    )
    op.create_index(
        "ticket_feed_numbered",
        "ticket_feed",
        ["tenant", "number"],
        unique=True,
        postgresql_where=sa.text("number IS NOT NULL"),
    )
    op.create_index(op.f("ticket_feed_tenant_ticket_idx"), "ticket_feed", ["tenant", "ticket"])
    op.create_index(
        "ticket_feed_unnumbered",
        "ticket_feed",
        ["tenant", "id"],
        postgresql_where=sa.text("number IS NULL"),
    )
