"""Abort: a remote agent is told that nobody wants its work any more, after the run has ended here.

The end doesn't depend on it: who cancels a run that waits isn't kept waiting by somebody else's server.
"""

import asyncio

import structlog

from app.backends.base import Abort, BackendError
from app.backends.remote_run import binding_of, turn_key
from app.control.desk import Desk
from app.domain.ids import RunId, Tenant
from app.runtime.agent import RemoteAgent
from app.storage import runs

WITHIN = 10.0

log = structlog.get_logger(__name__)


async def abort_remote(desk: Desk, tenant: Tenant, run_id: RunId) -> None:
    """Tell whoever has the run's newest turn; that they don't listen is only noted."""
    async with desk.database.reading() as connection:
        record = await runs.get(connection, tenant, run_id)
    if record is None:
        return
    agent = await desk.roster.resolve(tenant, record.agent_id, record.agent_version)
    if not isinstance(agent, RemoteAgent) or agent.spec.endpoint is None:
        return
    backend = desk.backends.of(agent.spec.endpoint)
    if not backend.capabilities.cancellation.supports_remote_abort:
        return
    abort = Abort(
        agent_id=record.agent_id,
        run_id=record.id,
        thread_id=record.thread_id,
        key=turn_key(record.id, record.steps),
        binding=binding_of(record),
    )
    try:
        async with asyncio.timeout(WITHIN):
            await backend.abort(abort)
    except (BackendError, TimeoutError) as error:
        log.warning("remote_abort_failed", run_id=run_id, error=repr(error)[:300])
