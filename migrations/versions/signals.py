"""Signals from outside, and tickets that wait for them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_KINDS = ("approval", "input", "frontend", "outcome_unknown", "limit", "auth", "child")


def upgrade() -> None:
    for column in (
        sa.Column("event_name", sa.Text(), nullable=True),
        sa.Column("event_key", sa.Text(), nullable=True),
        sa.Column("event_number", sa.Integer(), nullable=True),
    ):
        op.add_column("tickets", column)
    _kinds(*_KINDS, "event")
    op.create_check_constraint(
        op.f("tickets_event_check"),
        "tickets",
        "(kind = 'event') = (event_name IS NOT NULL)"
        " AND (event_name IS NULL) = (event_key IS NULL)"
        " AND (event_name IS NULL) = (event_number IS NULL)",
    )
    op.create_index(
        "tickets_waiting_for_events",
        "tickets",
        ["tenant", "event_name", "event_key"],
        postgresql_where=sa.text("kind = 'event' AND status = 'open'"),
    )
    _create_signals()
    _create_signal_tickets()


def downgrade() -> None:
    op.drop_table("signal_tickets")
    op.drop_table("signals")
    op.drop_index("tickets_waiting_for_events", table_name="tickets")
    op.drop_constraint(op.f("tickets_event_check"), "tickets")
    op.execute("UPDATE tickets SET kind = 'input' WHERE kind = 'event'")
    _kinds(*_KINDS)
    for column in ("event_number", "event_key", "event_name"):
        op.drop_column("tickets", column)


def _create_signals() -> None:
    op.create_table(
        "signals",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column(
            "payload",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=True,
        ),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("sent_by", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("kept_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "status IN ('delivering', 'kept', 'answered')", name=op.f("signals_status_check")
        ),
        sa.CheckConstraint("answer IN ('kept', 'answered')", name=op.f("signals_answer_check")),
        sa.CheckConstraint(
            "status = 'delivering' OR answer IS NOT NULL", name=op.f("signals_answered_check")
        ),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("signals_pkey")),
    )
    op.create_index(
        "signals_kept",
        "signals",
        ["tenant", "name", "key", "created_at"],
        postgresql_where=sa.text("status = 'kept'"),
    )
    op.create_index(op.f("signals_created_at_idx"), "signals", ["created_at"])


def _create_signal_tickets() -> None:
    op.create_table(
        "signal_tickets",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("signal_id", sa.Text(), nullable=False),
        sa.Column("ticket", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("run_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("thread_id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("waited", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "outcome IN ('pending', 'answered', 'payload_mismatch', 'already_decided', 'expired',"
            " 'void')",
            name=op.f("signal_tickets_outcome_check"),
        ),
        sa.CheckConstraint(
            "(outcome = 'payload_mismatch') = (problem IS NOT NULL)",
            name=op.f("signal_tickets_problem_check"),
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


def _kinds(*known: str) -> None:
    allowed = ", ".join(f"'{kind}'" for kind in known)
    op.drop_constraint(op.f("tickets_kind_check"), "tickets")
    op.create_check_constraint(op.f("tickets_kind_check"), "tickets", f"kind IN ({allowed})")
