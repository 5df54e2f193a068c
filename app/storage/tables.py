"""The tables, with check constraints that mirror the domain's state machines.

The queue's tables aren't here: they are pgqueuer's, in the schema `pgq`.
"""

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, JSONB, TSVECTOR

from app.domain.children.background_tasks import TaskStatus
from app.domain.memories.memories import MemoryScope
from app.domain.runs.runs import RunStatus, WaitingReason
from app.domain.signals import SignalOutcome, SignalStatus
from app.domain.threads.inputs import InputStatus
from app.domain.threads.messages import Role, Visibility
from app.domain.tickets.decisions import Action, DecisionEffect
from app.domain.tickets.terms import OnExpiry
from app.domain.tickets.tickets import NoticeKind, TicketKind, TicketStatus
from app.domain.tools.tool_calls import CallStatus, Effect, ResumeMode

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)

_uuid = Uuid(as_uuid=False)
_time = DateTime(timezone=True)
_now = text("now()")

NEVER_EXPIRES = "'9000-01-01 00:00:00+00'::timestamp with time zone"
"""SQL: `NEVER`, which tickets that never expire have in lists by expiry."""


def _one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    """A check that the column holds a value of the enum; null passes where the column allows it."""
    allowed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({allowed})", name=column)


def _belongs_to(parent: str, column: str) -> ForeignKeyConstraint:
    """A foreign key by which rows are deleted together with their parent row."""
    return ForeignKeyConstraint(
        ["tenant", column], [f"{parent}.tenant", f"{parent}.id"], ondelete="CASCADE"
    )


threads = Table(
    "threads",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", _uuid, nullable=False),
    # The client's own name of the thread. The id follows from it, so it needs no index.
    Column("key", Text),
    Column("title", Text),
    Column("resource_id", Text),
    Column("parent_thread_id", _uuid),
    Column("metadata", JSONB, nullable=False, server_default=text("'{}'")),
    Column("state", JSONB),
    # Counted here, so that the locked row says whether a run may start and whether others are queued.
    Column("next_message_seq", BigInteger, nullable=False, server_default=text("1")),
    Column("open_run_id", _uuid),
    Column("latest_run_id", _uuid),
    Column("queue_length", Integer, nullable=False, server_default=text("0")),
    Column("created_at", _time, nullable=False, server_default=_now),
    Column("updated_at", _time, nullable=False, server_default=_now),
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

event_heads = Table(
    "event_heads",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("thread_id", _uuid, nullable=False),
    Column("next_seq", BigInteger, nullable=False),
    Column("run_id", _uuid),
    Column("attempt", Integer),
    # The last event number that retention has removed; null when it has removed none.
    Column("pruned_to", BigInteger),
    PrimaryKeyConstraint("tenant", "thread_id"),
    # Every flush updates a row: free space in each page lets the update stay in that page.
    postgresql_with={"fillfactor": "50"},
)

messages = Table(
    "messages",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("thread_id", _uuid, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("message_id", _uuid, nullable=False),
    Column("role", Text, nullable=False),
    Column("visibility", Text, nullable=False, server_default=text("'all'")),
    Column("content", JSONB, nullable=False),
    Column("tool_calls", JSONB(none_as_null=True)),
    Column("tool_call_id", Text),
    Column("produced_by_run", _uuid),
    Column("step_index", Integer),
    Column("edited_arguments", JSONB(none_as_null=True)),
    Column("created_at", _time, nullable=False, server_default=_now),
    PrimaryKeyConstraint("tenant", "thread_id", "seq"),
    UniqueConstraint("tenant", "thread_id", "message_id"),
    _belongs_to("threads", "thread_id"),
    _one_of("role", Role),
    _one_of("visibility", Visibility),
    CheckConstraint("seq >= 1", name="seq"),
    CheckConstraint("(role = 'tool') = (tool_call_id IS NOT NULL)", name="tool_call_id"),
)

# Ranges of messages that a rollback has excluded. The messages themselves stay in the log.
rollbacks = Table(
    "rollbacks",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("thread_id", _uuid, nullable=False),
    Column("from_seq", BigInteger, nullable=False),
    Column("to_seq", BigInteger, nullable=False),
    Column("run_id", _uuid, nullable=False),
    Column("by_run_id", _uuid, nullable=False),
    Column("created_at", _time, nullable=False, server_default=_now),
    PrimaryKeyConstraint("tenant", "thread_id", "from_seq"),
    _belongs_to("threads", "thread_id"),
    CheckConstraint("from_seq >= 1 AND from_seq <= to_seq", name="range"),
)

runs = Table(
    "runs",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", _uuid, nullable=False),
    Column("thread_id", _uuid, nullable=False),
    # That of the thread when the run was created.
    Column("thread_key", Text),
    Column("agent_id", Text, nullable=False),
    Column("agent_version", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("admitted", Boolean, nullable=False),
    Column("waiting_reason", Text),
    Column("waiting_message", Text),
    # When a run that waits for a rate limit resumes.
    Column("waiting_until", _time),
    Column("termination", JSONB(none_as_null=True)),
    Column("final_output", Text),
    Column("structured_output", JSONB(none_as_null=True)),
    Column("root_run_id", _uuid, nullable=False),
    Column("parent_run_id", _uuid),
    Column("parent_thread_id", _uuid),
    Column("parent_call_id", Text),
    Column("depth", Integer, nullable=False, server_default=text("0")),
    Column("retry_of", _uuid),
    Column("request", JSONB, nullable=False),
    Column("request_digest", Text, nullable=False),
    Column("input_from", BigInteger),
    Column("input_to", BigInteger),
    Column("input_ids", ARRAY(_uuid), nullable=False, server_default=text("'{}'")),
    Column("output_from", BigInteger),
    Column("output_to", BigInteger),
    Column("output_ids", ARRAY(_uuid), nullable=False, server_default=text("'{}'")),
    Column("steps", Integer, nullable=False, server_default=text("0")),
    Column("input_tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("output_tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("state", JSONB(none_as_null=True)),
    Column("metadata", JSONB, nullable=False, server_default=text("'{}'")),
    Column("started_by", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("owner", _uuid),
    Column("losses", Integer, nullable=False, server_default=text("0")),
    Column("cancel_requested_at", _time),
    Column("cancel_requested_by", Text),
    Column("cancel_reason", Text),
    Column("traceparent", Text),
    Column("dispatch_id", Text),
    Column("events_from", BigInteger, nullable=False),
    Column("created_at", _time, nullable=False, server_default=_now),
    Column("started_at", _time),
    Column("finished_at", _time),
    Column("updated_at", _time, nullable=False, server_default=_now),
    # Execution time of dead workers after their last checkpoint of this run. It never decreases.
    Column("lost_seconds", Double, nullable=False, server_default=text("0")),
    # Counted here, so that the locked row says whether the run may finish.
    Column("unread_inputs", Integer, nullable=False, server_default=text("0")),
    Column("open_tasks", Integer, nullable=False, server_default=text("0")),
    # The run that replaces this one: its messages are rolled back once this run is done.
    Column("rolled_back_by", _uuid),
    # The thread's state before this run changed it, for a rollback.
    Column("thread_state_before", JSONB(none_as_null=True)),
    # While `pause_requested_at` is set, no worker claims the run, and it suspends after its step.
    Column("pause_requested_at", _time),
    Column("pause_requested_by", Text),
    Column("pause_reason", Text),
    PrimaryKeyConstraint("tenant", "id"),
    _belongs_to("threads", "thread_id"),
    _one_of("status", RunStatus),
    _one_of("waiting_reason", WaitingReason),
    CheckConstraint("(status = 'waiting') = (waiting_reason IS NOT NULL)", name="waiting"),
    CheckConstraint(
        "(waiting_until IS NOT NULL) = (waiting_reason IS NOT DISTINCT FROM 'rate_limit')",
        name="waiting_until",
    ),
    CheckConstraint("(status = 'done') = (termination IS NOT NULL)", name="termination"),
    CheckConstraint("(status = 'done') = (finished_at IS NOT NULL)", name="finished"),
    CheckConstraint("owner IS NULL OR status = 'running'", name="owner"),
    CheckConstraint("admitted OR status IN ('created', 'done')", name="admitted"),
    CheckConstraint("status NOT IN ('running', 'waiting') OR attempt > 0", name="attempt"),
    CheckConstraint("(input_from IS NULL) = (input_to IS NULL)", name="input"),
    CheckConstraint("(output_from IS NULL) = (output_to IS NULL)", name="output"),
    CheckConstraint("unread_inputs >= 0", name="unread_inputs"),
    CheckConstraint("open_tasks >= 0", name="open_tasks"),
    Index(None, "tenant", "created_at", "id"),
    Index(None, "tenant", "thread_id", "created_at", "id"),
    # For lists: unfinished runs by status, and runs that did not succeed by how they ended. Most runs are
    # in neither, and a list of finished or succeeded runs finds enough of them by creation.
    Index(
        "runs_unfinished",
        "tenant",
        "status",
        "created_at",
        "id",
        postgresql_where=text("status <> 'done'"),
    ),
    Index(
        "runs_without_success",
        "tenant",
        text("(termination ->> 'type')"),
        "created_at",
        "id",
        postgresql_where=text(
            "(termination ->> 'type') NOT IN ('natural_end', 'behavior_requested')"
        ),
    ),
    Index(None, "tenant", "agent_id", "created_at", "id"),
    # Runs without metadata have no entry, so that they start faster.
    Index(
        "runs_metadata",
        "metadata",
        postgresql_using="gin",
        postgresql_ops={"metadata": "jsonb_path_ops"},
        postgresql_where=text("metadata <> '{}'"),
    ),
    # Runs with an error code, by that code.
    Index(
        "runs_ended_by_code",
        "tenant",
        text("(termination ->> 'code')"),
        "created_at",
        "id",
        postgresql_where=text("(termination ->> 'code') IS NOT NULL"),
    ),
    # For lists of runs that wait for the same. `runs_unfinished` has all that wait, which may be a million.
    Index(
        "runs_waiting_for",
        "tenant",
        "waiting_reason",
        "created_at",
        "id",
        postgresql_where=text("waiting_reason IS NOT NULL"),
    ),
    # No index has a column that each checkpoint changes, such as `updated_at`. So a checkpoint of a running run writes
    # no index: its row stays in its page (a heap-only update), for which each page has free space.
    #
    # At most one run occupies a thread.
    Index(
        "runs_one_per_thread",
        "tenant",
        "thread_id",
        unique=True,
        postgresql_where=text("admitted AND status <> 'done'"),
    ),
    # The queue of a thread, in the order of the starts.
    Index(
        "runs_queued",
        "tenant",
        "thread_id",
        "events_from",
        postgresql_where=text("status = 'created' AND NOT admitted"),
    ),
    # For the sweeper: runs that a worker should execute.
    Index(
        "runs_moving",
        "owner",
        postgresql_where=text("admitted AND status IN ('created', 'running')"),
    ),
    Index(
        "runs_waiting_for_version",
        "agent_version",
        postgresql_where=text("waiting_reason = 'agent_version_unavailable'"),
    ),
    # Paused runs that were resumed and that no worker has claimed yet.
    Index(
        "runs_resumed",
        "created_at",
        postgresql_where=text("waiting_reason = 'manual_pause' AND pause_requested_at IS NULL"),
    ),
    Index(
        "runs_rate_limited",
        "waiting_until",
        postgresql_where=text("waiting_reason = 'rate_limit'"),
    ),
    # Suspended runs with a cancel request: a worker has to claim and end them.
    Index(
        "runs_waiting_to_be_cancelled",
        "created_at",
        postgresql_where=text("status = 'waiting' AND cancel_requested_at IS NOT NULL"),
    ),
    # For retention, which reads finished runs in the order of their ends.
    Index("runs_finished", "finished_at", "tenant", "id", postgresql_where=text("status = 'done'")),
    Index(
        "runs_of_parents",
        "tenant",
        "parent_run_id",
        postgresql_where=text("parent_run_id IS NOT NULL"),
    ),
    # The runs below a root. A root has no entry, so that most runs start without one.
    Index(
        "runs_below_roots",
        "tenant",
        "root_run_id",
        postgresql_where=text("parent_run_id IS NOT NULL"),
    ),
    # For the sweeper: child runs whose parent may be done.
    Index(
        "runs_unfinished_children",
        "tenant",
        "parent_run_id",
        postgresql_where=text("parent_run_id IS NOT NULL AND status <> 'done'"),
    ),
    # Finished child runs that are to be deleted.
    Index(
        "runs_to_delete",
        "created_at",
        postgresql_where=text(
            "status = 'done' AND parent_run_id IS NOT NULL AND (request ->> 'keep') = 'false'"
        ),
    ),
    # Runs that wait for tasks and have an unread report.
    Index(
        "runs_unread",
        "created_at",
        postgresql_where=text("waiting_reason = 'background_tasks' AND unread_inputs > 0"),
    ),
    postgresql_with={"fillfactor": "80"},
)

inputs = Table(
    "inputs",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", _uuid, nullable=False),
    Column("thread_id", _uuid, nullable=False),
    Column("run_id", _uuid, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("message", JSONB, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'pending'")),
    Column("revision", Integer, nullable=False, server_default=text("1")),
    Column("created_at", _time, nullable=False, server_default=_now),
    Column("consumed_seq", BigInteger),
    # The subject that retracted it; null if its run ended without reading it.
    Column("retracted_by", Text),
    PrimaryKeyConstraint("tenant", "id"),
    _belongs_to("runs", "run_id"),
    _one_of("status", InputStatus),
    CheckConstraint("(status = 'consumed') = (consumed_seq IS NOT NULL)", name="consumed_seq"),
    Index(None, "tenant", "run_id", "position", postgresql_where=text("status = 'pending'")),
    # For the cascade from `runs`.
    Index(None, "tenant", "run_id"),
)

tool_calls = Table(
    "tool_calls",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("run_id", _uuid, nullable=False),
    Column("step_index", Integer, nullable=False),
    Column("call_id", Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("arguments", JSONB, nullable=False),
    Column("edited_arguments", JSONB(none_as_null=True)),
    Column("unreported_outcome", JSONB(none_as_null=True)),
    Column("status", Text, nullable=False),
    Column("effect", Text, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    # The digest of an MCP tool's description when the model called it.
    Column("tool_digest", Text),
    Column("attempt", Integer, nullable=False),
    Column("worker", _uuid),
    Column("started_at", _time),
    Column("updated_at", _time, nullable=False, server_default=_now),
    PrimaryKeyConstraint("tenant", "run_id", "step_index", "call_id"),
    _belongs_to("runs", "run_id"),
    _one_of("status", CallStatus),
    _one_of("effect", Effect),
)

tasks = Table(
    "tasks",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("run_id", _uuid, nullable=False),
    Column("thread_id", _uuid, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("agent_version", Text, nullable=False),
    Column("call_id", Text, nullable=False),
    Column("tool_name", Text, nullable=False),
    Column("arguments", JSONB, nullable=False),
    Column("effect", Text, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'running'")),
    Column("result", JSONB(none_as_null=True)),
    Column("error", Text),
    Column("inbox", JSONB, nullable=False, server_default=text("'[]'")),
    Column("inbox_read", Integer, nullable=False, server_default=text("0")),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("owner", _uuid),
    Column("losses", Integer, nullable=False, server_default=text("0")),
    Column("created_at", _time, nullable=False, server_default=_now),
    Column("started_at", _time),
    Column("finished_at", _time),
    Column("reported_at", _time),
    Column("updated_at", _time, nullable=False, server_default=_now),
    Column("child", JSONB(none_as_null=True)),
    Column("child_run_id", _uuid),
    PrimaryKeyConstraint("tenant", "id"),
    _belongs_to("runs", "run_id"),
    _one_of("effect", Effect),
    _one_of("status", TaskStatus),
    CheckConstraint("(status = 'running') = (finished_at IS NULL)", name="finished"),
    CheckConstraint("(status = 'failed') = (error IS NOT NULL)", name="error"),
    CheckConstraint("result IS NULL OR status = 'completed'", name="result"),
    CheckConstraint("owner IS NULL OR status = 'running'", name="owner"),
    CheckConstraint("(attempt = 0) = (started_at IS NULL)", name="attempt"),
    CheckConstraint("reported_at IS NULL OR status <> 'running'", name="reported"),
    CheckConstraint("inbox_read BETWEEN 0 AND jsonb_array_length(inbox)", name="inbox_read"),
    CheckConstraint("(child IS NULL) = (child_run_id IS NULL)", name="child"),
    CheckConstraint("child IS NULL OR owner IS NULL", name="child_owner"),
    Index(None, "tenant", "run_id", "created_at", "id"),
    Index(
        "tasks_of_children",
        "tenant",
        "child_run_id",
        postgresql_where=text("child_run_id IS NOT NULL"),
    ),
    # For the sweeper: tasks that a worker should execute.
    Index("tasks_moving", "owner", postgresql_where=text("status = 'running'")),
)

# Follow-ups whose last try failed. They are deleted with the run that they are for.
failed_followups = Table(
    "failed_followups",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("about", _uuid, nullable=False),
    Column("on_behalf_of", _uuid, nullable=False),
    Column("tries", Integer, nullable=False, server_default=text("1")),
    Column("error", Text, nullable=False),
    Column("failed_at", _time, nullable=False, server_default=_now),
    Column("next_at", _time, nullable=False),
    Column("given_up_at", _time),
    PrimaryKeyConstraint("tenant", "name", "about"),
    _belongs_to("runs", "on_behalf_of"),
    CheckConstraint("tries >= 1", name="tries"),
    Index(None, "tenant", "on_behalf_of"),
)

# Runs that ended without their agent's code, whose `run_end` hooks are due. The row is deleted before
# the first hook is called.
pending_run_ends = Table(
    "pending_run_ends",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("run_id", _uuid, nullable=False),
    Column("log_end", BigInteger, nullable=False),
    Column("thread_state", JSONB, nullable=False),
    Column("created_at", _time, nullable=False, server_default=_now),
    Column("claims", Integer, nullable=False, server_default="0"),
    Column("claimed_until", _time),
    PrimaryKeyConstraint("tenant", "run_id"),
    _belongs_to("runs", "run_id"),
    Index(None, "created_at"),
)

tickets = Table(
    "tickets",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", _uuid, nullable=False),
    Column("run_id", _uuid, nullable=False),
    Column("thread_id", _uuid, nullable=False),
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
    Column("expires_at", _time),
    Column("on_expiry", Text),
    Column("remind_at", _time),
    Column("reminders", Integer, nullable=False, server_default=text("0")),
    Column("approvers", JSONB(none_as_null=True)),
    Column("applied_at", _time),
    Column("created_at", _time, nullable=False, server_default=_now),
    Column("updated_at", _time, nullable=False, server_default=_now),
    PrimaryKeyConstraint("tenant", "id"),
    _belongs_to("runs", "run_id"),
    _one_of("kind", TicketKind),
    _one_of("status", TicketStatus),
    _one_of("resume_mode", ResumeMode),
    _one_of("tool_effect", Effect),
    CheckConstraint("(status = 'decided') = (decision_id IS NOT NULL)", name="decision_id"),
    CheckConstraint("applied_at IS NULL OR status IN ('decided', 'expired')", name="applied_at"),
    _one_of("on_expiry", OnExpiry),
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
    Column("run_id", _uuid, nullable=False),
    Column("ticket", _uuid, nullable=False),
    Column("via_run_id", _uuid, nullable=False),
    Column("status", Text, nullable=False),
    Column("updated_at", _time, nullable=False, server_default=_now),
    PrimaryKeyConstraint("tenant", "run_id", "ticket"),
    _belongs_to("runs", "run_id"),
    _one_of("status", TicketStatus),
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
    Column("ticket", _uuid, nullable=False),
    Column("decision_id", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("payload", JSONB(none_as_null=True)),
    Column("reason", Text),
    Column("subject", Text, nullable=False),
    Column("effect", Text, nullable=False),
    Column("refusal", Text),
    Column("at", _time, nullable=False),
    PrimaryKeyConstraint("tenant", "ticket", "decision_id"),
    _belongs_to("tickets", "ticket"),
    _one_of("action", Action),
    _one_of("effect", DecisionEffect),
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
    Column("kept_until", _time, nullable=False),
    Column("created_at", _time, nullable=False, server_default=_now),
    PrimaryKeyConstraint("tenant", "id"),
    _one_of("status", SignalStatus),
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
    Column("ticket", _uuid, nullable=False),
    Column("run_id", _uuid, nullable=False),
    Column("thread_id", _uuid, nullable=False),
    Column("position", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("problem", Text),
    # Whether the ticket was open when the signal was sent; only those are in the response.
    Column("waited", Boolean, nullable=False),
    PrimaryKeyConstraint("tenant", "signal_id", "ticket"),
    ForeignKeyConstraint(
        ["tenant", "signal_id"], ["signals.tenant", "signals.id"], ondelete="CASCADE"
    ),
    _one_of("outcome", SignalOutcome),
    CheckConstraint("(outcome = 'payload_mismatch') = (problem IS NOT NULL)", name="problem"),
    # Signals that were matched with a ticket before.
    Index(None, "tenant", "ticket"),
)

ticket_feed = Table(
    "ticket_feed",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", BigInteger, Identity(always=True), nullable=False),
    # Assigned after the commit by the first reader of the feed, so that commits don't wait for it.
    Column("number", BigInteger),
    Column("ticket", _uuid, nullable=False),
    Column("kind", Text, nullable=False),
    Column("decision_id", Text),
    Column("at", _time, nullable=False, server_default=_now),
    PrimaryKeyConstraint("tenant", "id"),
    _belongs_to("tickets", "ticket"),
    _one_of("kind", NoticeKind),
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
    Column("id", _uuid, nullable=False),
    Column("scope", Text, nullable=False),
    Column("scope_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("pattern", Text, nullable=False),
    Column("arguments", JSONB(none_as_null=True)),
    Column("behavior", Text, nullable=False),
    Column("ticket", _uuid),
    Column("reason", Text),
    Column("created_by", Text, nullable=False),
    Column("created_at", _time, nullable=False, server_default=_now),
    Column("revoked_at", _time),
    Column("revoked_by", Text),
    PrimaryKeyConstraint("tenant", "id"),
    Index(None, "tenant", "created_at", "id"),
    CheckConstraint("scope IN ('run', 'thread', 'agent')", name="scope"),
    CheckConstraint("behavior IN ('allow', 'ask', 'deny')", name="behavior"),
    Index(None, "tenant", "scope", "scope_id", postgresql_where=text("revoked_at IS NULL")),
)

events = Table(
    "events",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("thread_id", _uuid, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("from_seq", BigInteger),
    Column("run_id", _uuid, nullable=False),
    Column("step", Integer),
    Column("ts", _time, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("body", Text, nullable=False),
    PrimaryKeyConstraint("tenant", "thread_id", "seq"),
    CheckConstraint("seq >= 1 AND from_seq <= seq", name="seq"),
)

# The bytes of files. Those without a hash are of uploads that haven't ended, or will be deleted. `place` is 'pg' for
# chunks in this database and 's3' for objects in a bucket. A row with `deleted_at` stays until its objects are deleted.
blobs = Table(
    "blobs",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", _uuid, nullable=False),
    Column("sha256", Text),
    Column("size", BigInteger),
    Column("created_at", _time, nullable=False, server_default=_now),
    Column("place", Text, nullable=False, server_default="pg"),
    Column("deleted_at", _time),
    PrimaryKeyConstraint("tenant", "id"),
    CheckConstraint("(sha256 IS NULL) = (size IS NULL)", name="size"),
    Index("blobs_deleted", "deleted_at", postgresql_where=text("deleted_at IS NOT NULL")),
    Index(
        "blobs_by_hash",
        "tenant",
        "sha256",
        unique=True,
        postgresql_where=text("sha256 IS NOT NULL"),
    ),
    Index(None, "created_at"),
)

blob_chunks = Table(
    "blob_chunks",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("blob_id", _uuid, nullable=False),
    Column("n", Integer, nullable=False),
    Column("bytes", BYTEA, nullable=False),
    PrimaryKeyConstraint("tenant", "blob_id", "n"),
    _belongs_to("blobs", "blob_id"),
)

files = Table(
    "files",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", _uuid, nullable=False),
    Column("blob_id", _uuid, nullable=False),
    Column("name", Text),
    Column("media_type", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", _time, nullable=False, server_default=_now),
    PrimaryKeyConstraint("tenant", "id"),
    ForeignKeyConstraint(["tenant", "blob_id"], ["blobs.tenant", "blobs.id"]),
    Index(None, "tenant", "created_at", "id"),
    Index(None, "tenant", "blob_id"),
)

# The threads that refer to a file: by their messages, or because their tools saved it. A file is deleted with the last of them.
file_threads = Table(
    "file_threads",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("thread_id", _uuid, nullable=False),
    Column("file_id", _uuid, nullable=False),
    PrimaryKeyConstraint("tenant", "thread_id", "file_id"),
    _belongs_to("threads", "thread_id"),
    _belongs_to("files", "file_id"),
    Index(None, "tenant", "file_id"),
)

# The files that tools have saved, numbered within their run.
saved_files = Table(
    "saved_files",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("run_id", _uuid, nullable=False),
    Column("number", Integer, nullable=False),
    Column("file_id", _uuid, nullable=False),
    Column("call_id", Text, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    PrimaryKeyConstraint("tenant", "run_id", "number"),
    _belongs_to("runs", "run_id"),
    _belongs_to("files", "file_id"),
    Index(None, "tenant", "file_id"),
)

# What agents keep across runs. A memory belongs to its owner, not to a run or a thread.
memories = Table(
    "memories",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", _uuid, nullable=False),
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
    Column("run_id", _uuid),
    Column("saved_by", Text, nullable=False),
    Column("created_at", _time, nullable=False, server_default=_now),
    Column("updated_at", _time, nullable=False, server_default=_now),
    PrimaryKeyConstraint("tenant", "id"),
    UniqueConstraint("tenant", "scope", "subject", "key"),
    _one_of("scope", MemoryScope),
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
    Column("run_id", _uuid, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Column("digest", Text, nullable=False),
    PrimaryKeyConstraint("tenant", "run_id", "idempotency_key", "digest"),
    _belongs_to("runs", "run_id"),
)

# The audit of deletions: whose memories, how many, by whom. It has no key and no value.
memory_deletions = Table(
    "memory_deletions",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", _uuid, nullable=False),
    Column("scope", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("count", Integer, nullable=False),
    Column("deleted_by", Text, nullable=False),
    # The run whose tool deleted it; null if a client did.
    Column("run_id", _uuid),
    Column("created_at", _time, nullable=False, server_default=_now),
    PrimaryKeyConstraint("tenant", "id"),
    _one_of("scope", MemoryScope),
    Index(None, "tenant", "created_at", "id"),
)

# The usage ledger. Its rows outlive their runs, so they refer to them without a foreign key.
usage = Table(
    "usage",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("thread_id", _uuid, nullable=False),
    Column("run_id", _uuid, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("step_index", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("at", _time, nullable=False, server_default=_now),
    Column("root_run_id", _uuid, nullable=False),
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
        Column("at", _time, nullable=False),
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
    Column("since", _time, nullable=False),
    Column("until", _time, nullable=False),
    PrimaryKeyConstraint("id"),
    CheckConstraint("id = 1", name="id"),
    CheckConstraint("since <= until", name="period"),
)

retention = Table(
    "retention",
    metadata,
    Column("job", Text, nullable=False),
    # The last run that the job has handled. Jobs handle runs in the order of their ends.
    Column("finished_at", _time, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("run_id", _uuid, nullable=False),
    PrimaryKeyConstraint("job"),
)

workers = Table(
    "workers",
    metadata,
    Column("id", _uuid, nullable=False),
    Column("role", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", _time, nullable=False, server_default=_now),
    Column("heartbeat_at", _time, nullable=False, server_default=_now),
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
    Column("migrated_at", _time, nullable=False, server_default=_now),
    PrimaryKeyConstraint("revision"),
)

server_secrets = Table(
    "server_secrets",
    metadata,
    Column("name", Text, nullable=False),
    Column("value", BYTEA, nullable=False),
    Column("created_at", _time, nullable=False, server_default=_now),
    PrimaryKeyConstraint("name"),
)

agents = Table(
    "agents",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("spec", JSONB, nullable=False),
    Column("created_at", _time, nullable=False, server_default=_now),
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
    Column("created_at", _time, nullable=False, server_default=_now),
    Column("location", Text),
    PrimaryKeyConstraint("tenant", "subject", "route", "key"),
    Index(None, "created_at"),
)

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
    Column("first_seen", _time, nullable=False, server_default=_now),
    Column("last_seen", _time, nullable=False, server_default=_now),
    # The description that counts as accepted: by a person, or, without one, as the server's first.
    Column("accepted_digest", Text),
    Column("accepted", JSONB(none_as_null=True)),
    Column("accepted_by", Text),
    Column("accepted_at", _time),
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
    Column("renewed_until", _time),
    Column("updated_at", _time, nullable=False, server_default=_now),
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
    Column("updated_at", _time, nullable=False, server_default=_now),
    PrimaryKeyConstraint("tenant", "server", "worker"),
)
