"""Tools and states of MCP servers; tickets carry what a tool needs to continue."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0005_mcp"
down_revision = "0004_list_indexes"
branch_labels = None
depends_on = None

is_additive = True

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("tickets", sa.Column("carry", JSONB(none_as_null=True)))
    op.create_table(
        "mcp_tools",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("described", JSONB(), nullable=False),
        sa.Column("is_listed", sa.Boolean(), nullable=False, server_default=sa.text("true")),
        sa.Column("first_seen", _TIME, nullable=False, server_default=sa.func.now()),
        sa.Column("last_seen", _TIME, nullable=False, server_default=sa.func.now()),
        sa.Column("accepted_digest", sa.Text()),
        sa.Column("accepted", JSONB(none_as_null=True)),
        sa.Column("accepted_by", sa.Text()),
        sa.Column("accepted_at", _TIME),
        sa.PrimaryKeyConstraint("tenant", "server", "name"),
    )
    op.create_table(
        "mcp_servers",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("state", JSONB(), nullable=False),
        sa.Column("restarts", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("updated_at", _TIME, nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("tenant", "server", "worker"),
    )


def downgrade() -> None:
    op.drop_table("mcp_servers")
    op.drop_table("mcp_tools")
    op.drop_column("tickets", "carry")
