"""Abort: a remote agent is told that nobody wants its work any more, after the run has ended here.

The end doesn't depend on it: who cancels a run isn't kept waiting by somebody else's server.
"""

from app.backends.remote.abort import abort_turn
from app.context import ServiceContext
from app.domain.ids import RunId, Tenant
from app.runtime.agent import RemoteAgent
from app.storage.runs import runs


async def abort_remote(ctx: ServiceContext, tenant: Tenant, run_id: RunId) -> None:
    """Tell whoever has the run's newest turn."""
    async with ctx.database.reading() as connection:
        record = await runs.get(connection, tenant, run_id)
    if record is None:
        return
    agent = await ctx.agents.resolve(tenant, record.agent_id, record.agent_version)
    if not isinstance(agent, RemoteAgent) or agent.spec.endpoint is None:
        return
    backend = ctx.backends.of(agent.spec.endpoint)
    await abort_turn(backend, record)
