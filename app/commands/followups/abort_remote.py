"""Abort the turn of a remote agent whose run has ended here.

The run's end doesn't wait for it, so a cancel doesn't depend on another server.
"""

import asyncio

import structlog

from app.backends.base import Abort, Backend, BackendError
from app.backends.remote.run import started_turn
from app.context import ServiceContext
from app.domain.ids import RunId, Tenant
from app.domain.runs.runs import RunRecord
from app.runtime.agent import RemoteAgent
from app.storage.runs import runs

ABORT_TIMEOUT_SECONDS = 30.0
"""Time-out of the request to the remote."""

log = structlog.get_logger(__name__)


async def abort_remote(ctx: ServiceContext, tenant: Tenant, run_id: RunId) -> None:
    """Abort the run's newest turn at its remote agent."""
    async with ctx.database.reading() as connection:
        record = await runs.get(connection, tenant, run_id)
    if record is None:
        return
    agent = await ctx.agents.resolve(tenant, record.agent_id, record.agent_version)
    if not isinstance(agent, RemoteAgent) or agent.spec.endpoint is None:
        return
    backend = ctx.backends.of(agent.spec.endpoint)
    await _abort_turn(backend, record)


async def _abort_turn(backend: Backend, record: RunRecord) -> None:
    """Ask the remote to stop a run's newest turn, if it may have received one. A failure is only logged."""
    begun = started_turn(record)
    if begun is None or not backend.capabilities.cancellation.supports_remote_abort:
        return
    abort = Abort(
        agent_id=record.agent_id,
        run_id=record.id,
        thread_id=record.thread_id,
        key=begun.key,
        binding=begun.binding,
    )
    try:
        async with asyncio.timeout(ABORT_TIMEOUT_SECONDS):
            await backend.abort(abort)
    except (BackendError, TimeoutError) as error:
        log.warning("remote_abort_failed", run_id=record.id, error=repr(error)[:300])
