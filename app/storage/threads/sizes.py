"""How much a thread takes: rows and bytes of each table that holds a part of it, and what merging saves."""

from sqlalchemy import text

from app.domain.ids import Tenant, ThreadId
from app.domain.threads.threads import TableSize, ThreadSize
from app.storage.postgres.database import Connection

_OF_THREAD = "t.tenant = :tenant AND t.thread_id = :thread"
_OF_ITS_RUNS = (
    "t.tenant = :tenant AND t.run_id IN"
    " (SELECT id FROM runs WHERE tenant = :tenant AND thread_id = :thread)"
)
_OF_ITS_TICKETS = (
    "t.tenant = :tenant AND t.ticket IN"
    " (SELECT id FROM tickets WHERE tenant = :tenant AND thread_id = :thread)"
)
_OF_ITS_RULES = (
    "t.tenant = :tenant AND (t.scope = 'thread' AND t.scope_id = CAST(CAST(:thread AS uuid) AS text)"
    " OR t.scope = 'run' AND t.scope_id IN"
    " (SELECT CAST(id AS text) FROM runs WHERE tenant = :tenant AND thread_id = :thread))"
)
_PARTS = {
    "threads": "t.tenant = :tenant AND t.id = :thread",
    "messages": _OF_THREAD,
    "rollbacks": _OF_THREAD,
    "runs": _OF_THREAD,
    "inputs": _OF_THREAD,
    "tool_calls": _OF_ITS_RUNS,
    "tasks": _OF_THREAD,
    "tickets": _OF_THREAD,
    "decisions": _OF_ITS_TICKETS,
    "ticket_feed": _OF_ITS_TICKETS,
    "rules": _OF_ITS_RULES,
    "events": _OF_THREAD,
}
# Of each row that is gone, what it had beside its text: its header, its keys and its type.
_SAVED = """
SELECT coalesce(sum(seq - from_seq), 0) AS rows, coalesce(sum((seq - from_seq) * (
    pg_column_size(t.*) - pg_column_size(t.body) - coalesce(pg_column_size(t.from_seq), 0)
)), 0) AS bytes
FROM events t WHERE t.from_seq IS NOT NULL AND
"""


async def of_thread(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> ThreadSize:
    """Of every table, also those in which the thread has nothing."""
    names = {"tenant": tenant, "thread": thread_id}
    tables = []
    for table, condition in _PARTS.items():
        # Names and conditions are the constants above.
        statement = f"SELECT count(*), coalesce(sum(pg_column_size(t.*)), 0) FROM {table} t WHERE "
        row = await connection.execute(text(statement + condition), names)
        rows, size = row.one()
        tables.append(TableSize(table, int(rows), int(size)))
    saved = (await connection.execute(text(_SAVED + _OF_THREAD), names)).one()
    return ThreadSize(tuple(tables), saved_rows=int(saved.rows), saved_size=int(saved.bytes))
