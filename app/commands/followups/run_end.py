"""Call the `run_end` hooks of a run that ended without its agent's code.

A claim is committed before the first hook starts, and lasts longer than the hooks may take. So no hook is called
twice, however often the follow-up is delivered, unless its process dies: then they are called again once the claim
has ended, as after a takeover. An error before the claim is retried; an error in a hook is logged.
"""

import asyncio

import structlog
from msgspec import Struct

from app.context import ServiceContext
from app.domain.errors import HoldfastError, PluginFailed, StateError
from app.domain.ids import AgentId, RunId, Tenant
from app.domain.json_values import JsonObject, storable
from app.domain.rules.rules import Rule
from app.domain.runs.runs import RunRecord
from app.runtime.agent import RemoteAgent, UnknownAgentVersion
from app.runtime.ended.ended_run import EndedRun
from app.runtime.handoff import active_agent
from app.runtime.phases import call_run_end_hooks
from app.runtime.plugins import Phase
from app.storage.queue import run_ends
from app.storage.queue.run_ends import PendingRunEnd
from app.storage.runs import runs
from app.storage.threads import messages, threads
from app.storage.tickets import rules

HOOKS_TIMEOUT_SECONDS = 60.0
CLAIM_SECONDS = 90.0
"""Includes the time to save the changes of the hooks."""

log = structlog.get_logger(__name__)


class AgentNotHere(HoldfastError):
    """The agent version isn't installed here: a process that has it must retry the follow-up."""


async def call_run_end(ctx: ServiceContext, tenant: Tenant, run_id: RunId) -> bool:
    """Call the hooks unless that was done before; False while another worker has the claim.

    Raises `AgentNotHere` before the claim.
    """
    async with ctx.database.reading() as connection:
        record = await runs.get(connection, tenant, run_id)
        pending = await run_ends.find(connection, tenant, run_id)
    if record is None or pending is None:
        return True
    run = await _load(ctx, record, pending)
    async with ctx.database.transaction() as connection:
        claim = await run_ends.claim(connection, tenant, run_id, seconds=CLAIM_SECONDS)
    if claim is None:
        return False
    changes = _NO_CHANGES if run is None else await _changes_of_hooks(run)
    await _save(ctx, record, pending, claim, changes)
    return True


async def _changes_of_hooks(run: EndedRun) -> "_Changes":
    """Call the hooks; hooks that fail change nothing."""
    try:
        async with asyncio.timeout(HOOKS_TIMEOUT_SECONDS):
            await call_run_end_hooks(run)
        return _Changes(run.changed_run_state, run.changed_thread_state)
    except PluginFailed as error:
        log.warning("plugin_failed", plugin=error.plugin, phase=error.phase, exc_info=True)
    except TimeoutError:
        log.warning("run_end_hooks_timed_out", run_id=run.record.id, seconds=HOOKS_TIMEOUT_SECONDS)
    except StateError:
        log.warning("run_end_state_invalid", run_id=run.record.id, exc_info=True)
    return _NO_CHANGES


async def _load(ctx: ServiceContext, record: RunRecord, pending: PendingRunEnd) -> EndedRun | None:
    """None if the agent has no `run_end` hook."""
    active = active_agent(pending.thread_state) if record.steps else None
    agent_id, version = active or (record.agent_id, record.agent_version)
    agent = await ctx.agents.for_tenant(record.tenant).at_version(agent_id, version)
    if isinstance(agent, UnknownAgentVersion):
        raise AgentNotHere(agent.reason)
    if isinstance(agent, RemoteAgent) or not agent.plugins.hooks(Phase.RUN_END):
        return None
    history = await messages.history_at_end(
        ctx.database.pool, record.tenant, record.thread_id, record.id, pending.log_end
    )
    return EndedRun(
        record=record,
        agent=agent,
        log=history,
        thread_state=pending.thread_state,
        rules=_Rules(ctx, record),
    )


async def _save(
    ctx: ServiceContext, record: RunRecord, pending: PendingRunEnd, claim: int, changes: "_Changes"
) -> None:
    """Finish the call, and save the hooks' changes of the run's state, unless the claim was lost. Changes of the
    thread's state are dropped if it has changed since the end, because a later run has used it."""
    run_state, thread_state = changes.run_state, changes.thread_state
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        thread = await threads.lock(connection, record.tenant, record.thread_id)
        if not await run_ends.finish(connection, record.tenant, record.id, claim) or thread is None:
            return
        if run_state is not None:
            await runs.set_state_of_done(connection, record.tenant, record.id, run_state)
        if thread_state is None:
            return
        now = await threads.state(connection, record.tenant, record.thread_id)
        if thread.open_run_id is not None or now != pending.thread_state:
            log.warning("run_end_state_dropped", run_id=record.id, thread_id=thread.id)
            return
        await threads.change(
            connection, record.tenant, record.thread_id, {"state": storable(thread_state)}
        )


class _Changes(Struct, frozen=True):
    """The states after the hooks; None for a state that they didn't change."""

    run_state: JsonObject | None
    thread_state: JsonObject | None


_NO_CHANGES = _Changes(None, None)


class _Rules(Struct, frozen=True):
    """The current rules of the run's tenant."""

    ctx: ServiceContext
    record: RunRecord

    async def for_calls_of(self, agent_id: AgentId) -> list[Rule]:
        of = self.record
        async with self.ctx.database.reading() as connection:
            return list(await rules.for_calls(connection, of.tenant, of.id, of.thread_id, agent_id))
