"""Lists of tickets by kind."""

from alembic import op

revision = "0019_ticket_kinds"
down_revision = "0018_run_indexes"
branch_labels = None
depends_on = None

is_additive = True

_INDEX = "tickets_tenant_kind_status_created_at_id_idx"


def upgrade() -> None:
    op.create_index(op.f(_INDEX), "tickets", ["tenant", "kind", "status", "created_at", "id"])


def downgrade() -> None:
    op.drop_index(op.f(_INDEX), "tickets")
