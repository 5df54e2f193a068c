"""Call the `run_end` hooks of a run that ended without its agent's code.

The claim is committed before the first hook starts. So no hook is called twice, however often the follow-up
is delivered and wherever a process dies; a process that dies after the claim may leave hooks uncalled.
What goes wrong before the claim is tried again; what a hook does wrong changes nothing.
"""

import asyncio
from dataclasses import dataclass

import structlog

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

log = structlog.get_logger(__name__)


class AgentNotHere(HoldfastError):
    """The follow-up has to be tried again by a process that has the agent."""


async def call_run_end(ctx: ServiceContext, tenant: Tenant, run_id: RunId) -> None:
    """Call them unless that was done before; raises `AgentNotHere` before the claim."""
    async with ctx.database.reading() as connection:
        record = await runs.get(connection, tenant, run_id)
        pending = await run_ends.find(connection, tenant, run_id)
    if record is None or pending is None:
        return
    run = await _load(ctx, record, pending)
    async with ctx.database.transaction() as connection:
        is_ours = await run_ends.claim(connection, tenant, run_id)
    if not is_ours or run is None:
        return
    try:
        async with asyncio.timeout(HOOKS_TIMEOUT_SECONDS):
            await call_run_end_hooks(run)
    except PluginFailed as error:
        log.warning("plugin_failed", plugin=error.plugin, phase=error.phase, exc_info=True)
        return
    except TimeoutError:
        log.warning("run_end_timed_out", run_id=run_id, seconds=HOOKS_TIMEOUT_SECONDS)
        return
    try:
        changes = _Changes(run.changed_run_state, run.changed_thread_state)
    except StateError:
        log.warning("run_end_changes_unwritable", run_id=run_id, exc_info=True)
        return
    await _save(ctx, run, changes)


async def _load(ctx: ServiceContext, record: RunRecord, pending: PendingRunEnd) -> EndedRun | None:
    """None if the agent has no such hook."""
    at_work = active_agent(pending.thread_state) if record.steps else None
    agent_id, version = at_work or (record.agent_id, record.agent_version)
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


async def _save(ctx: ServiceContext, run: EndedRun, changes: "_Changes") -> None:
    """Keep what the hooks have changed of the run's state. A change of what the thread remembers is dropped
    if the thread has changed since the end: a later run has built on it."""
    record, run_state, thread_state = run.record, changes.run_state, changes.thread_state
    if run_state is None and thread_state is None:
        return
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        thread = await threads.lock(connection, record.tenant, record.thread_id)
        if thread is None:
            return
        if run_state is not None:
            await runs.set_state_of_done(connection, record.tenant, record.id, run_state)
        if thread_state is None:
            return
        now = await threads.state(connection, record.tenant, record.thread_id)
        if thread.open_run_id is not None or now != run.thread_state:
            log.warning("run_end_changes_dropped", run_id=record.id, thread_id=thread.id)
            return
        await threads.change(
            connection, record.tenant, record.thread_id, {"state": storable(thread_state)}
        )


@dataclass(frozen=True, slots=True)
class _Changes:
    """The states as hooks leave them; None for one that they leave as it was."""

    run_state: JsonObject | None
    thread_state: JsonObject | None


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules of the run's tenant as they are now."""

    ctx: ServiceContext
    record: RunRecord

    async def for_calls_of(self, agent_id: AgentId) -> list[Rule]:
        of = self.record
        async with self.ctx.database.reading() as connection:
            return list(await rules.for_calls(connection, of.tenant, of.id, of.thread_id, agent_id))
