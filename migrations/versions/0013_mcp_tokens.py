"""Access tokens for MCP servers."""

import sqlalchemy as sa
from alembic import op

revision = "0013_mcp_tokens"
down_revision = "0012_tool_digests"
branch_labels = None
depends_on = None

is_additive = True

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "mcp_tokens",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("sealed", sa.Text()),
        sa.Column("renewed_until", _TIME),
        sa.Column("updated_at", _TIME, nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("tenant", "server", "subject", "issuer"),
    )


def downgrade() -> None:
    op.drop_table("mcp_tokens")
