"""Cancel requests of runs: whether a run has one, and their release by a blocked process."""

from app.domain.ids import RunId, Tenant, ThreadId, WorkerId
from app.storage.postgres.connect import RawConnection
from app.storage.postgres.database import RawPool
from app.storage.queue import deliveries
from app.storage.runs.runs import RunKey

_RELEASE = """
UPDATE runs SET owner = NULL, updated_at = now(),
    lost_seconds = lost_seconds + greatest(0, extract(epoch FROM now() - updated_at))
WHERE (tenant, id) IN (
    SELECT tenant, id FROM runs
    WHERE owner = $1 AND admitted AND status = 'running' AND cancel_requested_at IS NOT NULL
    FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING tenant, thread_id::text AS thread_id, id::text AS id, attempt
"""


async def release(connection: RawConnection, owner: WorkerId) -> list[RunKey]:
    """Release the worker's runs that have a cancel request, and enqueue a delivery of each.

    The attempt stays. The interrupted execution can write until another worker has claimed the run, and
    nothing from then on. Rows that are locked are left for the next call.
    """
    async with connection.transaction():
        released = [
            RunKey(
                Tenant(row["tenant"]), ThreadId(row["thread_id"]), RunId(row["id"]), row["attempt"]
            )
            for row in await connection.fetch(_RELEASE, owner)
        ]
        for key in released:
            await deliveries.enqueue_on(connection, key, is_cancel=True)
    return released


async def is_requested(pool: RawPool, key: RunKey) -> bool:
    """Whether the run has a cancel request. A request stays until the run is done."""
    return bool(
        await pool.fetchval(
            "SELECT cancel_requested_at IS NOT NULL AND status <> 'done' FROM runs "
            "WHERE tenant = $1 AND id = $2",
            *(key.tenant, key.run_id),
        )
    )
