"""Looks at remote agents that have asked: one that was answered where it lives wakes its run here.

The run that waits holds nothing meanwhile. Whoever claims it looks for itself; to wake one for nothing
does no harm.
"""

import asyncio

import structlog

from app.backends.remote.run import accepted_turn
from app.backends.remote.status import tickets_decided_remotely
from app.context import ServiceContext
from app.domain.ids import RunId, Tenant
from app.domain.runs.runs import RunRecord, RunStatus
from app.runtime.agent import RemoteAgent
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from app.storage.tickets import remote_polling, tickets

log = structlog.get_logger(__name__)


async def poll_remote_tickets(ctx: ServiceContext, limit: int) -> int:
    """Look at some that wait, all at once; how many runs were woken."""
    async with ctx.database.reading() as connection:
        chosen = await remote_polling.due_for_poll(connection, limit)
    async with asyncio.TaskGroup() as looking:
        looks = [looking.create_task(_look(ctx, tenant, run_id)) for tenant, run_id in chosen]
    return sum(look.result() for look in looks)


async def _look(ctx: ServiceContext, tenant: Tenant, run_id: RunId) -> bool:
    try:
        return await _look_at_run(ctx, tenant, run_id)
    except DATABASE_UNAVAILABLE:
        return False
    except Exception:
        # One remote that can't be looked at mustn't keep all others from it.
        log.exception("remote_look_failed", tenant=tenant, run_id=run_id)
        return False


async def _look_at_run(ctx: ServiceContext, tenant: Tenant, run_id: RunId) -> bool:
    async with ctx.database.reading() as connection:
        record = await runs.get(connection, tenant, run_id)
        unsettled = await tickets.unsettled_of_run(connection, tenant, run_id)
    if record is None or record.status is not RunStatus.WAITING or record.is_paused:
        return False
    agent = await ctx.agents.resolve(tenant, record.agent_id, record.agent_version)
    if not isinstance(agent, RemoteAgent) or agent.spec.endpoint is None:
        return False
    backend = ctx.backends.of(agent.spec.endpoint)
    turn = accepted_turn(record)
    if (
        turn is None
        or await tickets_decided_remotely(backend, run_id, turn.binding, unsettled) is None
    ):
        return False
    return await _wake(ctx, record)


async def _wake(ctx: ServiceContext, seen: RunRecord) -> bool:
    """Have the run go on, unless something else has become of it since."""
    async with ctx.database.transaction() as connection:
        record = await runs.lock(connection, seen.tenant, seen.id)
        if record is None or (record.status, record.attempt) != (seen.status, seen.attempt):
            return False
        key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
        await deliveries.enqueue(connection, key)
    return True
