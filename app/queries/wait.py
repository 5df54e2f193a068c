"""Wait until a run is done or needs a decision, without holding a database connection meanwhile."""

import asyncio

from app.context import ServiceContext
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunStatus
from app.storage.runs import runs

POLL_INTERVAL_SECONDS = 1.0


async def wait_until_settled(
    ctx: ServiceContext,
    tenant: Tenant,
    thread_id: ThreadId,
    run_id: RunId,
    seconds: float,
    *,
    only_done: bool = False,
) -> bool:
    """Wait until the run is done or needs a decision; False after `seconds`."""
    subscription = ctx.hub.subscribe(tenant, thread_id)
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        while True:
            found = await runs.status_of_run(ctx.database.pool, tenant, run_id)
            if found is None or found.status is RunStatus.DONE:
                return True
            if found.needs_decision and not only_done:
                return True
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            await subscription.next(min(left, POLL_INTERVAL_SECONDS))
    finally:
        subscription.close()
