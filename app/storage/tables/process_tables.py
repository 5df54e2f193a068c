"""The tables that processes share: workers, agents, secrets, keys and revisions."""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import BYTEA, JSONB

from app.storage.tables.columns import NOW, TIME, UUID, metadata

retention = Table(
    "retention",
    metadata,
    Column("job", Text, nullable=False),
    # The last run that the job has handled. Jobs handle runs in the order of their ends.
    Column("finished_at", TIME, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("run_id", UUID, nullable=False),
    PrimaryKeyConstraint("job"),
)


workers = Table(
    "workers",
    metadata,
    Column("id", UUID, nullable=False),
    Column("role", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", TIME, nullable=False, server_default=NOW),
    Column("heartbeat_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("id"),
    CheckConstraint("role IN ('all', 'api', 'worker')", name="role"),
    postgresql_with={"fillfactor": "50"},
)


schema_revisions = Table(
    "schema_revisions",
    metadata,
    Column("revision", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("is_additive", Boolean, nullable=False),
    Column("migrated_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("revision"),
)


server_secrets = Table(
    "server_secrets",
    metadata,
    Column("name", Text, nullable=False),
    Column("value", BYTEA, nullable=False),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("name"),
)


agents = Table(
    "agents",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("spec", JSONB, nullable=False),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant", "id", "version"),
)


idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    Column("location", Text),
    PrimaryKeyConstraint("tenant", "subject", "route", "key"),
    Index(None, "created_at"),
)
