"""Waiting for a run to come to rest, without holding anything meanwhile."""

import asyncio

from app.control.desk import Desk
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs import RunStatus
from app.storage import runs

LOOK_AGAIN = 1.0


async def until_rest(
    desk: Desk,
    tenant: Tenant,
    thread_id: ThreadId,
    run_id: RunId,
    seconds: float,
    *,
    only_done: bool = False,
) -> bool:
    """Whether the run is done, or waits for somebody, before the time is over."""
    subscription = desk.hub.subscribe(tenant, thread_id)
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        while True:
            standing = await runs.standing(desk.database.hot, tenant, run_id)
            if standing is None or standing.status is RunStatus.DONE:
                return True
            if standing.rests and not only_done:
                return True
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            await subscription.next(min(left, LOOK_AGAIN))
    finally:
        subscription.close()
