"""Who may answer a ticket and until when, what became of it in the order of the inbox, remembered rules."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_JSON = postgresql.JSONB(astext_type=sa.Text())
_UNAPPLIED = "status IN ('decided', 'expired') AND applied_at IS NULL"
_KINDS = "'opened', 'voted', 'decided', 'reminder', 'expired', 'void'"


def upgrade() -> None:
    _tickets()
    _decisions_and_rules()
    _feed()


def _tickets() -> None:
    op.add_column("tickets", sa.Column("approvers", _JSON))
    op.add_column("tickets", sa.Column("remind_at", sa.DateTime(timezone=True)))
    op.add_column(
        "tickets", sa.Column("reminders", sa.Integer(), server_default=sa.text("0"), nullable=False)
    )
    op.create_index(
        "tickets_due",
        "tickets",
        ["expires_at"],
        postgresql_where=sa.text("status = 'open' AND on_expiry <> 'keep'"),
    )
    op.create_index(
        "tickets_to_remind_of",
        "tickets",
        ["remind_at"],
        postgresql_where=sa.text("status = 'open' AND remind_at IS NOT NULL"),
    )
    op.create_index(
        op.f("tickets_tenant_agent_id_tool_name_created_at_idx"),
        "tickets",
        ["tenant", "agent_id", "tool_name", "created_at"],
    )
    op.drop_index("tickets_unapplied", table_name="tickets")
    op.create_index(
        "tickets_unapplied", "tickets", ["updated_at"], postgresql_where=sa.text(_UNAPPLIED)
    )


def _decisions_and_rules() -> None:
    op.add_column("decisions", sa.Column("refusal", sa.Text()))
    op.create_check_constraint(
        op.f("decisions_refusal_check"), "decisions", "(effect = 'refused') = (refusal IS NOT NULL)"
    )
    op.create_index(
        op.f("tickets_tenant_created_at_id_idx"), "tickets", ["tenant", "created_at", "id"]
    )
    op.add_column("rules", sa.Column("agent_id", sa.Text(), nullable=False))
    op.add_column("rules", sa.Column("arguments", _JSON))
    op.add_column("rules", sa.Column("ticket", sa.Uuid(as_uuid=False)))
    op.add_column("rules", sa.Column("reason", sa.Text()))
    op.add_column("rules", sa.Column("revoked_by", sa.Text()))
    op.create_index(op.f("rules_tenant_created_at_id_idx"), "rules", ["tenant", "created_at", "id"])


def _feed() -> None:
    op.create_table(
        "ticket_feed",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("number", sa.BigInteger()),
        sa.Column("ticket", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("decision_id", sa.Text()),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.CheckConstraint(f"kind IN ({_KINDS})", name=op.f("ticket_feed_kind_check")),
        sa.ForeignKeyConstraint(
            ["tenant", "ticket"],
            ["tickets.tenant", "tickets.id"],
            name=op.f("ticket_feed_tenant_ticket_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("ticket_feed_pkey")),
    )
    op.create_index(op.f("ticket_feed_tenant_ticket_idx"), "ticket_feed", ["tenant", "ticket"])
    op.create_index(
        "ticket_feed_numbered",
        "ticket_feed",
        ["tenant", "number"],
        unique=True,
        postgresql_where=sa.text("number IS NOT NULL"),
    )
    op.create_index(
        "ticket_feed_unnumbered",
        "ticket_feed",
        ["tenant", "id"],
        postgresql_where=sa.text("number IS NULL"),
    )
    op.create_table(
        "ticket_feed_heads",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("next_number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", name=op.f("ticket_feed_heads_pkey")),
    )
    # What was open before there was a feed is in it from its beginning.
    op.execute(
        "INSERT INTO ticket_feed (tenant, ticket, kind, at)"
        " SELECT tenant, id, 'opened', created_at FROM tickets WHERE status = 'open'"
        " ORDER BY created_at, id"
    )


def downgrade() -> None:
    op.drop_table("ticket_feed_heads")
    op.drop_table("ticket_feed")
    op.drop_index(op.f("rules_tenant_created_at_id_idx"), table_name="rules")
    for column in ("revoked_by", "reason", "ticket", "arguments", "agent_id"):
        op.drop_column("rules", column)
    op.drop_constraint(op.f("decisions_refusal_check"), "decisions")
    op.execute("DELETE FROM decisions WHERE effect = 'refused'")
    op.drop_column("decisions", "refusal")
    op.drop_index("tickets_unapplied", table_name="tickets")
    op.create_index(
        "tickets_unapplied",
        "tickets",
        ["updated_at"],
        postgresql_where=sa.text("status = 'decided' AND applied_at IS NULL"),
    )
    op.drop_index(op.f("tickets_tenant_created_at_id_idx"), table_name="tickets")
    op.drop_index(op.f("tickets_tenant_agent_id_tool_name_created_at_idx"), table_name="tickets")
    op.drop_index("tickets_to_remind_of", table_name="tickets")
    op.drop_index("tickets_due", table_name="tickets")
    op.drop_column("tickets", "reminders")
    op.drop_column("tickets", "remind_at")
    op.drop_column("tickets", "approvers")
