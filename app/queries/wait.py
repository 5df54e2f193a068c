"""Waiting for a run to come to rest, without holding anything meanwhile."""

import asyncio

from app.context import ServiceContext
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunStatus
from app.storage.runs import runs

POLL_INTERVAL_SECONDS = 1.0


async def wait_until_idle(
    ctx: ServiceContext,
    tenant: Tenant,
    thread_id: ThreadId,
    run_id: RunId,
    seconds: float,
    *,
    only_done: bool = False,
) -> bool:
    """Whether the run is done, or waits for somebody, before the time is over."""
    subscription = ctx.hub.subscribe(tenant, thread_id)
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        while True:
            standing = await runs.status_of_run(ctx.database.pool, tenant, run_id)
            if standing is None or standing.status is RunStatus.DONE:
                return True
            if standing.is_idle and not only_done:
                return True
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            await subscription.next(min(left, POLL_INTERVAL_SECONDS))
    finally:
        subscription.close()
