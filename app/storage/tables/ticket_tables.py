"""The tables of tickets, decisions and remembered rules, and of the feed that inboxes read."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from app.domain.tickets.decisions import Action, DecisionEffect
from app.domain.tickets.terms import OnExpiry
from app.domain.tickets.tickets import NoticeKind, TicketKind, TicketStatus
from app.domain.tools.tool_calls import Effect, ResumeMode
from app.storage.tables.columns import NOW, TIME, UUID, belongs_to, metadata, one_of

NEVER_EXPIRES = "'9000-01-01 00:00:00+00'::timestamp with time zone"
"""SQL: `NEVER`, which tickets that never expire have in lists by expiry."""


tickets = Table(
    "tickets",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", UUID, nullable=False),
    Column("run_id", UUID, nullable=False),
    Column("thread_id", UUID, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("ticket_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("call_id", Text),
    Column("step_index", Integer, nullable=False),
    Column("tool_name", Text, nullable=False),
    Column("arguments", JSONB, nullable=False),
    Column("args_digest", Text, nullable=False),
    Column("resume_mode", Text, nullable=False),
    Column("allowed_actions", ARRAY(Text), nullable=False),
    Column("response_schema", JSONB(none_as_null=True)),
    Column("reason", Text),
    Column("message", Text, nullable=False),
    Column("evidence", JSONB(none_as_null=True)),
    # What a tool needs to continue its call after the decision. No client sees it.
    Column("carry", JSONB(none_as_null=True)),
    # The effect of the call's tool; null if the ticket is about no call of a tool.
    Column("tool_effect", Text),
    Column("event_name", Text),
    Column("event_key", Text),
    Column("event_number", Integer),
    Column("status", Text, nullable=False, server_default=text("'open'")),
    Column("decision_id", Text),
    Column("expires_at", TIME),
    Column("on_expiry", Text),
    Column("remind_at", TIME),
    Column("reminders", Integer, nullable=False, server_default=text("0")),
    Column("approvers", JSONB(none_as_null=True)),
    Column("applied_at", TIME),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    Column("updated_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant", "id"),
    belongs_to("runs", "run_id"),
    one_of("kind", TicketKind),
    one_of("status", TicketStatus),
    one_of("resume_mode", ResumeMode),
    one_of("tool_effect", Effect),
    CheckConstraint("(status = 'decided') = (decision_id IS NOT NULL)", name="decision_id"),
    CheckConstraint("applied_at IS NULL OR status IN ('decided', 'expired')", name="applied_at"),
    one_of("on_expiry", OnExpiry),
    CheckConstraint(
        "(kind = 'event') = (event_name IS NOT NULL)"
        " AND (event_name IS NULL) = (event_key IS NULL)"
        " AND (event_name IS NULL) = (event_number IS NULL)",
        name="event",
    ),
    Index(None, "tenant", "run_id"),
    Index(None, "tenant", "status", "created_at", "id"),
    Index(None, "tenant", "kind", "status", "created_at", "id"),
    # Open tickets, those that expire first at the beginning.
    Index(
        "tickets_open_by_expiry",
        "tenant",
        text(f"coalesce(expires_at, {NEVER_EXPIRES})"),
        "id",
        postgresql_where=text("status = 'open'"),
    ),
    # For the audit by time, and for earlier decisions about similar calls.
    Index(None, "tenant", "created_at", "id"),
    Index(None, "tenant", "agent_id", "tool_name", "created_at"),
    # Decided or expired tickets that their run hasn't used yet.
    Index(
        "tickets_unapplied",
        "updated_at",
        postgresql_where=text("status IN ('decided', 'expired') AND applied_at IS NULL"),
    ),
    # Open tickets that wait for a child run.
    Index(
        "tickets_of_children",
        "tenant",
        "run_id",
        postgresql_where=text("kind = 'child' AND status = 'open'"),
    ),
    Index(
        "tickets_due",
        "expires_at",
        postgresql_where=text("status = 'open' AND on_expiry <> 'keep'"),
    ),
    Index(
        "tickets_to_remind_of",
        "remind_at",
        postgresql_where=text("status = 'open' AND remind_at IS NOT NULL"),
    ),
    # Open questions of remote agents, which may be answered outside of Holdfast.
    Index(
        "tickets_of_remotes",
        "created_at",
        postgresql_where=text("status = 'open' AND (evidence ->> 'remote_question') IS NOT NULL"),
    ),
    # Open tickets that a signal can answer.
    Index(
        "tickets_waiting_for_events",
        "tenant",
        "event_name",
        "event_key",
        postgresql_where=text("kind = 'event' AND status = 'open'"),
    ),
    Index(
        "tickets_one_open_per_name",
        "tenant",
        "run_id",
        "ticket_id",
        unique=True,
        postgresql_where=text("status = 'open'"),
    ),
)


# Tickets of runs below a run that the run's own stream shows. `via_run_id` is the child of the run through
# which the ticket blocks it. There is no foreign key to the ticket: it would lock a row of another thread.
child_tickets = Table(
    "child_tickets",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("run_id", UUID, nullable=False),
    Column("ticket", UUID, nullable=False),
    Column("via_run_id", UUID, nullable=False),
    Column("status", Text, nullable=False),
    Column("updated_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant", "run_id", "ticket"),
    belongs_to("runs", "run_id"),
    one_of("status", TicketStatus),
    Index(
        "child_tickets_open",
        "tenant",
        "ticket",
        postgresql_where=text("status = 'open'"),
    ),
)


decisions = Table(
    "decisions",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("ticket", UUID, nullable=False),
    Column("decision_id", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("payload", JSONB(none_as_null=True)),
    Column("reason", Text),
    Column("subject", Text, nullable=False),
    Column("effect", Text, nullable=False),
    Column("refusal", Text),
    Column("at", TIME, nullable=False),
    PrimaryKeyConstraint("tenant", "ticket", "decision_id"),
    belongs_to("tickets", "ticket"),
    one_of("action", Action),
    one_of("effect", DecisionEffect),
    CheckConstraint("(effect = 'refused') = (refusal IS NOT NULL)", name="refusal"),
    # At most one decision takes effect.
    Index(
        "decisions_one_winner",
        "tenant",
        "ticket",
        unique=True,
        postgresql_where=text("effect = 'decided'"),
    ),
)


ticket_feed = Table(
    "ticket_feed",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", BigInteger, Identity(always=True), nullable=False),
    # Assigned after the commit by the first reader of the feed, so that commits don't wait for it.
    Column("number", BigInteger),
    Column("ticket", UUID, nullable=False),
    Column("kind", Text, nullable=False),
    Column("decision_id", Text),
    Column("at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant", "id"),
    belongs_to("tickets", "ticket"),
    one_of("kind", NoticeKind),
    Index(None, "tenant", "ticket"),
    Index(
        "ticket_feed_numbered",
        "tenant",
        "number",
        unique=True,
        postgresql_where=text("number IS NOT NULL"),
    ),
    Index("ticket_feed_unnumbered", "tenant", "id", postgresql_where=text("number IS NULL")),
)


ticket_feed_heads = Table(
    "ticket_feed_heads",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("next_number", BigInteger, nullable=False),
    Column("pruned_to", BigInteger),
    PrimaryKeyConstraint("tenant"),
)


rules = Table(
    "rules",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", UUID, nullable=False),
    Column("scope", Text, nullable=False),
    Column("scope_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("pattern", Text, nullable=False),
    Column("arguments", JSONB(none_as_null=True)),
    Column("behavior", Text, nullable=False),
    Column("ticket", UUID),
    Column("reason", Text),
    Column("created_by", Text, nullable=False),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    Column("revoked_at", TIME),
    Column("revoked_by", Text),
    PrimaryKeyConstraint("tenant", "id"),
    Index(None, "tenant", "created_at", "id"),
    CheckConstraint("scope IN ('run', 'thread', 'agent')", name="scope"),
    CheckConstraint("behavior IN ('allow', 'ask', 'deny')", name="behavior"),
    Index(None, "tenant", "scope", "scope_id", postgresql_where=text("revoked_at IS NULL")),
)
