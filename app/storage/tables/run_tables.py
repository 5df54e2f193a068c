"""The tables of runs, their tool calls and what is still to do after them."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from app.domain.runs.runs import RunStatus, WaitingReason
from app.domain.tools.tool_calls import CallStatus, Effect
from app.storage.tables.columns import NOW, TIME, UUID, belongs_to, metadata, one_of

runs = Table(
    "runs",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", UUID, nullable=False),
    Column("thread_id", UUID, nullable=False),
    # That of the thread when the run was created.
    Column("thread_key", Text),
    Column("agent_id", Text, nullable=False),
    Column("agent_version", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("admitted", Boolean, nullable=False),
    Column("waiting_reason", Text),
    Column("waiting_message", Text),
    # When a run that waits for a rate limit resumes.
    Column("waiting_until", TIME),
    Column("termination", JSONB(none_as_null=True)),
    Column("final_output", Text),
    Column("structured_output", JSONB(none_as_null=True)),
    Column("root_run_id", UUID, nullable=False),
    Column("parent_run_id", UUID),
    Column("parent_thread_id", UUID),
    Column("parent_call_id", Text),
    Column("depth", Integer, nullable=False, server_default=text("0")),
    Column("retry_of", UUID),
    Column("request", JSONB, nullable=False),
    Column("request_digest", Text, nullable=False),
    Column("input_from", BigInteger),
    Column("input_to", BigInteger),
    Column("input_ids", ARRAY(UUID), nullable=False, server_default=text("'{}'")),
    Column("output_from", BigInteger),
    Column("output_to", BigInteger),
    Column("output_ids", ARRAY(UUID), nullable=False, server_default=text("'{}'")),
    Column("steps", Integer, nullable=False, server_default=text("0")),
    Column("input_tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("output_tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("state", JSONB(none_as_null=True)),
    Column("metadata", JSONB, nullable=False, server_default=text("'{}'")),
    Column("started_by", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("owner", UUID),
    Column("losses", Integer, nullable=False, server_default=text("0")),
    Column("cancel_requested_at", TIME),
    Column("cancel_requested_by", Text),
    Column("cancel_reason", Text),
    Column("traceparent", Text),
    Column("dispatch_id", Text),
    Column("events_from", BigInteger, nullable=False),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    Column("started_at", TIME),
    Column("finished_at", TIME),
    Column("updated_at", TIME, nullable=False, server_default=NOW),
    # Execution time of dead workers after their last checkpoint of this run. It never decreases.
    Column("lost_seconds", Double, nullable=False, server_default=text("0")),
    # Counted here, so that the locked row says whether the run may finish.
    Column("unread_inputs", Integer, nullable=False, server_default=text("0")),
    Column("open_tasks", Integer, nullable=False, server_default=text("0")),
    # The run that replaces this one: its messages are rolled back once this run is done.
    Column("rolled_back_by", UUID),
    # The thread's state before this run changed it, for a rollback.
    Column("thread_state_before", JSONB(none_as_null=True)),
    # While `pause_requested_at` is set, no worker claims the run, and it suspends after its step.
    Column("pause_requested_at", TIME),
    Column("pause_requested_by", Text),
    Column("pause_reason", Text),
    PrimaryKeyConstraint("tenant", "id"),
    belongs_to("threads", "thread_id"),
    one_of("status", RunStatus),
    one_of("waiting_reason", WaitingReason),
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


tool_calls = Table(
    "tool_calls",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("run_id", UUID, nullable=False),
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
    Column("worker", UUID),
    Column("started_at", TIME),
    Column("updated_at", TIME, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant", "run_id", "step_index", "call_id"),
    belongs_to("runs", "run_id"),
    one_of("status", CallStatus),
    one_of("effect", Effect),
)


# Follow-ups whose last try failed. They are deleted with the run that they are for.
failed_followups = Table(
    "failed_followups",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("about", UUID, nullable=False),
    Column("on_behalf_of", UUID, nullable=False),
    Column("tries", Integer, nullable=False, server_default=text("1")),
    Column("error", Text, nullable=False),
    Column("failed_at", TIME, nullable=False, server_default=NOW),
    Column("next_at", TIME, nullable=False),
    Column("given_up_at", TIME),
    PrimaryKeyConstraint("tenant", "name", "about"),
    belongs_to("runs", "on_behalf_of"),
    CheckConstraint("tries >= 1", name="tries"),
    Index(None, "tenant", "on_behalf_of"),
)


# Runs that ended without their agent's code, whose `run_end` hooks are due. The row is deleted before
# the first hook is called.
pending_run_ends = Table(
    "pending_run_ends",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("run_id", UUID, nullable=False),
    Column("log_end", BigInteger, nullable=False),
    Column("thread_state", JSONB, nullable=False),
    Column("created_at", TIME, nullable=False, server_default=NOW),
    Column("claims", Integer, nullable=False, server_default="0"),
    Column("claimed_until", TIME),
    PrimaryKeyConstraint("tenant", "run_id"),
    belongs_to("runs", "run_id"),
    Index(None, "created_at"),
)
