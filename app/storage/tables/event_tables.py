"""The tables of the event log."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
)

from app.storage.tables.columns import TIME, UUID, metadata

event_heads = Table(
    "event_heads",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("thread_id", UUID, nullable=False),
    Column("next_seq", BigInteger, nullable=False),
    Column("run_id", UUID),
    Column("attempt", Integer),
    # The last event number that retention has removed; null when it has removed none.
    Column("pruned_to", BigInteger),
    PrimaryKeyConstraint("tenant", "thread_id"),
    # Every flush updates a row: free space in each page lets the update stay in that page.
    postgresql_with={"fillfactor": "50"},
)


events = Table(
    "events",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("thread_id", UUID, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("from_seq", BigInteger),
    Column("run_id", UUID, nullable=False),
    Column("step", Integer),
    Column("ts", TIME, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("body", Text, nullable=False),
    PrimaryKeyConstraint("tenant", "thread_id", "seq"),
    CheckConstraint("seq >= 1 AND from_seq <= seq", name="seq"),
)
