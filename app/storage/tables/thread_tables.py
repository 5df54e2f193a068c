"""The tables of threads, their messages and the inputs of runs."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.domain.threads.inputs import InputStatus
from app.domain.threads.messages import Role, Visibility
from app.storage.tables.columns import NOW, TIME, UUID, belongs_to, metadata, one_of

threads = Table(
    "threads",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", UUID, nullable=False),
    # The client's own name of the thread. The id follows from it, so it needs no index.
    Column("key", Text),
    Column("title", Text),
    Column("resource_id", Text),
    Column("parent_thread_id", UUID),
    Column("metadata", JSONB, nullable=False, server_default=text("'{}'")),
    Column("state", JSONB),
    # Counted here, so that the locked row says whether a run may start and whether others are queued.
    Column("next_message_seq", BigInteger, nullable=False, server_default=text("1")),
    Column("open_run_id", UUID),
    Column("latest_run_id", UUID),
    Column("queue_length", Integer, nullable=False, server_default=text("0")),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    Column("updated_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant", "id"),
    CheckConstraint("queue_length >= 0", name="queue_length"),
    CheckConstraint("next_message_seq >= 1", name="next_message_seq"),
    Index(None, "tenant", "created_at", "id"),
    # Threads without a resource or a parent have no entry, so that they start faster.
    Index(
        "threads_of_resources",
        "tenant",
        "resource_id",
        "created_at",
        "id",
        postgresql_where=text("resource_id IS NOT NULL"),
    ),
    Index(
        "threads_of_parents",
        "tenant",
        "parent_thread_id",
        "created_at",
        "id",
        postgresql_where=text("parent_thread_id IS NOT NULL"),
    ),
    # For searches by metadata. Threads without metadata have no entry, so that they start faster.
    Index(
        "threads_metadata",
        "metadata",
        postgresql_using="gin",
        postgresql_ops={"metadata": "jsonb_path_ops"},
        postgresql_where=text("metadata <> '{}'"),
    ),
    # For searches by the words of titles.
    Index(
        "threads_titles",
        text("to_tsvector('simple'::regconfig, title)"),
        postgresql_using="gin",
        postgresql_where=text("title IS NOT NULL"),
    ),
    postgresql_with={"fillfactor": "80"},
)


messages = Table(
    "messages",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("thread_id", UUID, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("message_id", UUID, nullable=False),
    Column("role", Text, nullable=False),
    Column("visibility", Text, nullable=False, server_default=text("'all'")),
    Column("content", JSONB, nullable=False),
    Column("tool_calls", JSONB(none_as_null=True)),
    Column("tool_call_id", Text),
    Column("produced_by_run", UUID),
    Column("step_index", Integer),
    Column("edited_arguments", JSONB(none_as_null=True)),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant", "thread_id", "seq"),
    UniqueConstraint("tenant", "thread_id", "message_id"),
    belongs_to("threads", "thread_id"),
    one_of("role", Role),
    one_of("visibility", Visibility),
    CheckConstraint("seq >= 1", name="seq"),
    CheckConstraint("(role = 'tool') = (tool_call_id IS NOT NULL)", name="tool_call_id"),
)


# Ranges of messages that a rollback has excluded. The messages themselves stay in the log.
rollbacks = Table(
    "rollbacks",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("thread_id", UUID, nullable=False),
    Column("from_seq", BigInteger, nullable=False),
    Column("to_seq", BigInteger, nullable=False),
    Column("run_id", UUID, nullable=False),
    Column("by_run_id", UUID, nullable=False),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant", "thread_id", "from_seq"),
    belongs_to("threads", "thread_id"),
    CheckConstraint("from_seq >= 1 AND from_seq <= to_seq", name="range"),
)


inputs = Table(
    "inputs",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", UUID, nullable=False),
    Column("thread_id", UUID, nullable=False),
    Column("run_id", UUID, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("message", JSONB, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'pending'")),
    Column("revision", Integer, nullable=False, server_default=text("1")),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    Column("consumed_seq", BigInteger),
    # The subject that retracted it; null if its run ended without reading it.
    Column("retracted_by", Text),
    PrimaryKeyConstraint("tenant", "id"),
    belongs_to("runs", "run_id"),
    one_of("status", InputStatus),
    CheckConstraint("(status = 'consumed') = (consumed_seq IS NOT NULL)", name="consumed_seq"),
    Index(None, "tenant", "run_id", "position", postgresql_where=text("status = 'pending'")),
    # For the cascade from `runs`.
    Index(None, "tenant", "run_id"),
)
