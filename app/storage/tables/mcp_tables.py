"""The tables of MCP servers, their tools and access tokens."""

from sqlalchemy import (
    Boolean,
    Column,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.storage.tables.columns import NOW, TIME, metadata

# The tools that MCP servers list. Servers are settings of the operator, so the tenant is `*`.
mcp_tools = Table(
    "mcp_tools",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("server", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("described", JSONB, nullable=False),
    Column("is_listed", Boolean, nullable=False, server_default=text("true")),
    Column("first_seen", TIME, nullable=False, server_default=NOW),
    Column("last_seen", TIME, nullable=False, server_default=NOW),
    # The description that counts as accepted: by a person, or, without one, as the server's first.
    Column("accepted_digest", Text),
    Column("accepted", JSONB(none_as_null=True)),
    Column("accepted_by", Text),
    Column("accepted_at", TIME),
    PrimaryKeyConstraint("tenant", "server", "name"),
)


# Access tokens for servers. The subject is empty for tokens of Holdfast itself.
mcp_tokens = Table(
    "mcp_tokens",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("server", Text, nullable=False),
    Column("subject", Text, nullable=False),
    # The authorization server.
    Column("issuer", Text, nullable=False),
    # Null while the first token is requested.
    Column("sealed", Text),
    # Until then a process renews the token, and others don't.
    Column("renewed_until", TIME),
    Column("updated_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant", "server", "subject", "issuer"),
)


# The state of each server in each process, and the number of restarts that were requested.
mcp_servers = Table(
    "mcp_servers",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("server", Text, nullable=False),
    # The process; empty in the row that counts restarts.
    Column("worker", Text, nullable=False),
    Column("state", JSONB, nullable=False),
    Column("restarts", Integer, nullable=False, server_default=text("0")),
    Column("updated_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant", "server", "worker"),
)
