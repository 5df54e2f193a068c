"""The writes that tool calls have done, by digests. The caller holds the lock of the run."""

import hashlib

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from app.domain.ids import RunId, Tenant
from app.domain.json_values import canonical, storable
from app.domain.memories.writes import MemoryWrite
from app.storage.postgres.database import Connection
from app.storage.tables import memory_writes


async def record(connection: Connection, tenant: Tenant, run_id: RunId, write: MemoryWrite) -> bool:
    """Record a write of a call. False if an execution of the call has done it before."""
    values = {
        "tenant": tenant,
        "run_id": run_id,
        "idempotency_key": storable(write.idempotency_key),
        "digest": _digest(write),
    }
    statement = insert(memory_writes).values(values).on_conflict_do_nothing()
    return (await connection.execute(statement)).rowcount > 0


async def is_recorded(
    connection: Connection, tenant: Tenant, run_id: RunId, write: MemoryWrite
) -> bool:
    """Whether an execution of the call has done this write before."""
    statement = select(memory_writes.c.digest).where(
        memory_writes.c.tenant == tenant,
        memory_writes.c.run_id == run_id,
        memory_writes.c.idempotency_key == storable(write.idempotency_key),
        memory_writes.c.digest == _digest(write),
    )
    return (await connection.execute(statement)).one_or_none() is not None


def _digest(write: MemoryWrite) -> str:
    text = canonical([write.idempotency_key, write.operation, write.key, write.value, write.number])
    return hashlib.sha256(text.encode()).hexdigest()
