"""The tables of billed requests and their sums."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

from app.storage.tables.columns import NOW, TIME, UUID, metadata

# The usage ledger. Its rows outlive their runs, so they refer to them without a foreign key.
usage = Table(
    "usage",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("thread_id", UUID, nullable=False),
    Column("run_id", UUID, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("step_index", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("at", TIME, nullable=False, server_default=NOW),
    Column("root_run_id", UUID, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("input", BigInteger, nullable=False),
    Column("output", BigInteger, nullable=False),
    Column("cache_read", BigInteger, nullable=False),
    Column("cache_write", BigInteger, nullable=False),
    Column("reasoning", BigInteger, nullable=False),
    Column("cost_micros", BigInteger),
    Column("priced_by", Text),
    PrimaryKeyConstraint("tenant", "thread_id", "run_id", "attempt", "step_index", "number"),
    CheckConstraint("(cost_micros IS NULL) = (priced_by IS NULL)", name="priced_by"),
    Index(None, "tenant", "at"),
    # The requests of the runs below a root. Those of the root itself are found by its thread.
    Index(
        "usage_below_roots",
        "tenant",
        "root_run_id",
        postgresql_where=text("run_id <> root_run_id"),
    ),
    # For retention. Rows are inserted in the order of time, so a small index is enough.
    Index("usage_by_age", "at", postgresql_using="brin"),
)


def _usage_sums(name: str, *keys: str) -> Table:
    """Sums of the ledger. `at` is the beginning of the hour or of the day in UTC."""
    return Table(
        name,
        metadata,
        Column("tenant", Text, nullable=False),
        Column("at", TIME, nullable=False),
        *(Column(key, Text, nullable=False) for key in keys),
        Column("requests", BigInteger, nullable=False),
        Column("input", BigInteger, nullable=False),
        Column("output", BigInteger, nullable=False),
        Column("cache_read", BigInteger, nullable=False),
        Column("cache_write", BigInteger, nullable=False),
        Column("reasoning", BigInteger, nullable=False),
        # Of the requests with a price; null if none has one.
        Column("cost_micros", BigInteger),
        Column("unpriced", BigInteger, nullable=False),
        PrimaryKeyConstraint("tenant", "at", *keys),
        # Each hour is added to the sums of its day: free space in each page lets the update stay in that page.
        postgresql_with={"fillfactor": "70"},
    )


usage_hours = _usage_sums("usage_hours", "agent_id", "model", "provider", "kind")


usage_days = _usage_sums("usage_days", "agent_id", "model", "provider", "kind", "subject")


# One row: from which to which hour the ledger is summed.
usage_summed = Table(
    "usage_summed",
    metadata,
    Column("id", Integer, nullable=False, server_default=text("1")),
    Column("since", TIME, nullable=False),
    Column("until", TIME, nullable=False),
    PrimaryKeyConstraint("id"),
    CheckConstraint("id = 1", name="id"),
    CheckConstraint("since <= until", name="period"),
)
