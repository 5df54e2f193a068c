"""How much a thread takes: rows and bytes of each table that holds a part of it."""

from sqlalchemy import text

from app.domain.ids import Tenant, ThreadId
from app.domain.threads import TableSize
from app.storage.database import Connection

_OF_THREAD = "t.tenant = :tenant AND t.thread_id = :thread"
_OF_ITS_RUNS = (
    "t.tenant = :tenant AND t.run_id IN"
    " (SELECT id FROM runs WHERE tenant = :tenant AND thread_id = :thread)"
)
_OF_ITS_TICKETS = (
    "t.tenant = :tenant AND t.ticket IN"
    " (SELECT id FROM tickets WHERE tenant = :tenant AND thread_id = :thread)"
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
    "events": _OF_THREAD,
}


async def of_thread(connection: Connection, tenant: Tenant, thread_id: ThreadId) -> list[TableSize]:
    """Of every table, also those in which the thread has nothing."""
    sizes = []
    for table, condition in _PARTS.items():
        # Names and conditions are the constants above.
        statement = f"SELECT count(*), coalesce(sum(pg_column_size(t.*)), 0) FROM {table} t WHERE "
        row = await connection.execute(
            text(statement + condition), {"tenant": tenant, "thread": thread_id}
        )
        rows, size = row.one()
        sizes.append(TableSize(table, int(rows), int(size)))
    return sizes
