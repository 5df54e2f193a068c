"""The tables of signals."""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.domain.signals import SignalOutcome, SignalStatus
from app.storage.tables.columns import NOW, TIME, UUID, metadata, one_of

signals = Table(
    "signals",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("payload", JSONB(none_as_null=True)),
    Column("fingerprint", Text, nullable=False),
    Column("sent_by", Text, nullable=False),
    Column("status", Text, nullable=False),
    # The status in the response to the sender; null until all tickets of the signal have an outcome.
    Column("response_status", Text),
    Column("kept_until", TIME, nullable=False),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant", "id"),
    one_of("status", SignalStatus),
    CheckConstraint("response_status IN ('kept', 'answered')", name="response_status"),
    CheckConstraint("status = 'delivering' OR response_status IS NOT NULL", name="answered"),
    # Signals without a ticket, which a new ticket may match.
    Index(
        "signals_kept",
        "tenant",
        "name",
        "key",
        "created_at",
        postgresql_where=text("status = 'kept'"),
    ),
    Index(None, "created_at"),
)


signal_tickets = Table(
    "signal_tickets",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("signal_id", Text, nullable=False),
    Column("ticket", UUID, nullable=False),
    Column("run_id", UUID, nullable=False),
    Column("thread_id", UUID, nullable=False),
    Column("position", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("problem", Text),
    # Whether the ticket was open when the signal was sent; only those are in the response.
    Column("waited", Boolean, nullable=False),
    PrimaryKeyConstraint("tenant", "signal_id", "ticket"),
    ForeignKeyConstraint(
        ["tenant", "signal_id"], ["signals.tenant", "signals.id"], ondelete="CASCADE"
    ),
    one_of("outcome", SignalOutcome),
    CheckConstraint("(outcome = 'payload_mismatch') = (problem IS NOT NULL)", name="problem"),
    # Signals that were matched with a ticket before.
    Index(None, "tenant", "ticket"),
)
