"""The tables of memories."""

from sqlalchemy import (
    Column,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects.postgresql import JSONB, TSVECTOR

from app.domain.memories.memories import MemoryScope
from app.storage.tables.columns import NOW, TIME, UUID, belongs_to, metadata, one_of

# What agents keep across runs. A memory belongs to its owner, not to a run or a thread.
memories = Table(
    "memories",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", UUID, nullable=False),
    Column("scope", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("value", JSONB, nullable=False),
    # Bytes of the key and the value.
    Column("size", Integer, nullable=False),
    # The words of the key and the value, as they are and by their stems.
    Column("words", TSVECTOR, nullable=False),
    # The agent and the run that saved the value; null if a client did.
    Column("agent_id", Text),
    Column("run_id", UUID),
    Column("saved_by", Text, nullable=False),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    Column("updated_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant", "id"),
    UniqueConstraint("tenant", "scope", "subject", "key"),
    one_of("scope", MemoryScope),
    Index(None, "tenant", "created_at", "id"),
    # For retention.
    Index("memories_by_change", "updated_at"),
    Index("memories_words", "words", postgresql_using="gin"),
)


# The writes that tool calls have done. A call that runs again after a crash doesn't repeat them.
memory_writes = Table(
    "memory_writes",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("run_id", UUID, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Column("digest", Text, nullable=False),
    PrimaryKeyConstraint("tenant", "run_id", "idempotency_key", "digest"),
    belongs_to("runs", "run_id"),
)


# The audit of deletions: whose memories, how many, by whom. It has no key and no value.
memory_deletions = Table(
    "memory_deletions",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", UUID, nullable=False),
    Column("scope", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("count", Integer, nullable=False),
    Column("deleted_by", Text, nullable=False),
    # The run whose tool deleted it; null if a client did.
    Column("run_id", UUID),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant", "id"),
    one_of("scope", MemoryScope),
    Index(None, "tenant", "created_at", "id"),
)
