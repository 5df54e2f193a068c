"""Poll remote agents with open tickets: a ticket that was decided there resumes its run here.

The waiting run holds nothing meanwhile. The worker that claims it asks the remote again, so a needless
delivery does no harm.
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
    """Poll the remotes of up to `limit` waiting runs at once; returns how many runs were enqueued."""
    async with ctx.database.reading() as connection:
        chosen = await remote_polling.due_for_poll(connection, limit)
    async with asyncio.TaskGroup() as group:
        polls = [group.create_task(_poll_safely(ctx, tenant, run_id)) for tenant, run_id in chosen]
    return sum(poll.result() for poll in polls)


async def _poll_safely(ctx: ServiceContext, tenant: Tenant, run_id: RunId) -> bool:
    try:
        return await _poll(ctx, tenant, run_id)
    except DATABASE_UNAVAILABLE:
        return False
    except Exception:
        # A failure of one remote must not keep the others from being polled.
        log.exception("remote_poll_failed", tenant=tenant, run_id=run_id)
        return False


async def _poll(ctx: ServiceContext, tenant: Tenant, run_id: RunId) -> bool:
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
    return await _enqueue(ctx, record)


async def _enqueue(ctx: ServiceContext, seen: RunRecord) -> bool:
    """Enqueue the run, unless its status has changed since it was read."""
    async with ctx.database.transaction() as connection:
        record = await runs.lock(connection, seen.tenant, seen.id)
        if record is None or (record.status, record.attempt) != (seen.status, seen.attempt):
            return False
        key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
        await deliveries.enqueue(connection, key)
    return True
