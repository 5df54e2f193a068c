"""Sums of the usage ledger by hour and by day."""

import sqlalchemy as sa
from alembic import op

revision = "0017_usage_sums"
down_revision = "0016_ticket_lists"
branch_labels = None
depends_on = None

is_additive = True

_HOUR = ("agent_id", "model", "provider", "kind")


def upgrade() -> None:
    _create_sums("usage_hours", _HOUR)
    _create_sums("usage_days", (*_HOUR, "subject"))
    op.create_table(
        "usage_summed",
        sa.Column("id", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("usage_summed_id_check")),
        sa.CheckConstraint("since <= until", name=op.f("usage_summed_period_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("usage_summed_pkey")),
    )


def _create_sums(table: str, keys: tuple[str, ...]) -> None:
    numbers = ("requests", "input", "output", "cache_read", "cache_write", "reasoning")
    op.create_table(
        table,
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        *(sa.Column(key, sa.Text(), nullable=False) for key in keys),
        *(sa.Column(number, sa.BigInteger(), nullable=False) for number in numbers),
        sa.Column("cost_micros", sa.BigInteger(), nullable=True),
        sa.Column("unpriced", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "at", *keys, name=op.f(f"{table}_pkey")),
        postgresql_with={"fillfactor": "70"},
    )


def downgrade() -> None:
    op.drop_table("usage_summed")
    op.drop_table("usage_days")
    op.drop_table("usage_hours")
