"""The tables, with check constraints that mirror the domain's state machines.

The queue's tables aren't here: they are pgqueuer's, in the schema `pgq`.
"""

from app.storage.tables.columns import metadata
from app.storage.tables.event_tables import event_heads, events
from app.storage.tables.file_tables import blob_chunks, blobs, file_threads, files, saved_files
from app.storage.tables.mcp_tables import mcp_servers, mcp_tokens, mcp_tools
from app.storage.tables.memory_tables import memories, memory_deletions, memory_writes
from app.storage.tables.process_tables import (
    agents,
    idempotency_keys,
    retention,
    schema_revisions,
    server_secrets,
    workers,
)
from app.storage.tables.run_tables import failed_followups, pending_run_ends, runs, tool_calls
from app.storage.tables.signal_tables import signal_tickets, signals
from app.storage.tables.task_tables import tasks
from app.storage.tables.thread_tables import inputs, messages, rollbacks, threads
from app.storage.tables.ticket_tables import (
    NEVER_EXPIRES,
    child_tickets,
    decisions,
    rules,
    ticket_feed,
    ticket_feed_heads,
    tickets,
)
from app.storage.tables.usage_tables import usage, usage_days, usage_hours, usage_summed

__all__ = [
    "NEVER_EXPIRES",
    "agents",
    "blob_chunks",
    "blobs",
    "child_tickets",
    "decisions",
    "event_heads",
    "events",
    "failed_followups",
    "file_threads",
    "files",
    "idempotency_keys",
    "inputs",
    "mcp_servers",
    "mcp_tokens",
    "mcp_tools",
    "memories",
    "memory_deletions",
    "memory_writes",
    "messages",
    "metadata",
    "pending_run_ends",
    "retention",
    "rollbacks",
    "rules",
    "runs",
    "saved_files",
    "schema_revisions",
    "server_secrets",
    "signal_tickets",
    "signals",
    "tasks",
    "threads",
    "ticket_feed",
    "ticket_feed_heads",
    "tickets",
    "tool_calls",
    "usage",
    "usage_days",
    "usage_hours",
    "usage_summed",
    "workers",
]
