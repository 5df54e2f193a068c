"""Answers that are kept for repeated requests: whole, as they were sent, with their place."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

ANSWERED = "idempotency_keys_answered_check"


def upgrade() -> None:
    op.execute("DELETE FROM idempotency_keys WHERE status IS NULL")
    op.drop_constraint(op.f(ANSWERED), "idempotency_keys", type_="check")
    op.alter_column("idempotency_keys", "status", nullable=False)
    op.alter_column(
        "idempotency_keys",
        "body",
        type_=sa.Text(),
        nullable=False,
        postgresql_using="body::text",
    )
    op.add_column("idempotency_keys", sa.Column("location", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("idempotency_keys", "location")
    op.alter_column(
        "idempotency_keys",
        "body",
        type_=postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
        nullable=True,
        postgresql_using="body::jsonb",
    )
    op.alter_column("idempotency_keys", "status", nullable=True)
    op.create_check_constraint(
        op.f(ANSWERED), "idempotency_keys", "(status IS NULL) = (body IS NULL)"
    )
