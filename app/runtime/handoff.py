"""Hand-off: another agent continues the run, from the next step.

The run's state keeps a requested hand-off. The thread's state names the agent that worked last, with its
version, and changes only when an agent takes over. So a failed hand-off leaves the thread as it was. The
thread's next run uses that agent if its start names none.
"""

from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId, AgentVersion
from app.domain.json_values import JsonObject
from app.domain.runs.limits import Limit
from app.domain.runs.terminations import Blocked
from app.domain.usage.billed_requests import BilledTokens
from app.runtime.active_run import ActiveRun
from app.runtime.agent import RemoteAgent, ResolvedAgent, UnknownAgentVersion
from app.runtime.state import Change, ChangeBatch, StateKey, StateScope

ACTIVE_AGENT: StateKey[JsonObject | None, JsonObject | None] = StateKey(
    "__runtime.active_agent", lambda: None, scope=StateScope.THREAD
)
REQUESTED_AGENT: StateKey[AgentId | None, AgentId | None] = StateKey(
    "__runtime.requested_agent", lambda: None
)


def handoff_change(agent_id: AgentId) -> Change:
    """Request a hand-off to another agent; the newest request counts."""
    return Change(REQUESTED_AGENT, agent_id)


def active_agent(thread_state: JsonObject) -> tuple[AgentId, AgentVersion] | None:
    """The agent that worked on the thread last, by the thread's state.

    An entry without a version is only a request: no agent took over because of it.
    """
    remembered = thread_state.get(ACTIVE_AGENT.name)
    if remembered is None or remembered.get("version") is None:
        return None
    return AgentId(remembered["agent_id"]), AgentVersion(remembered["version"])


def with_active_agent(thread_state: JsonObject, agent: AgentSpec) -> JsonObject:
    """The thread's state while an agent executes a run that was started with it. Without an earlier
    hand-off the state stays as it is: the thread's latest run names the agent."""
    if thread_state.get(ACTIVE_AGENT.name) is None:
        return thread_state
    entry = {"agent_id": agent.id, "version": agent.version}
    return {**thread_state, ACTIVE_AGENT.name: entry}


def activate_agent(run: ActiveRun) -> None:
    """Activate the agent that a new run was started with, also if another agent worked on the thread."""
    run.state.register([ACTIVE_AGENT, REQUESTED_AGENT])
    if run.is_fresh:
        if run.state.snapshot.get(ACTIVE_AGENT) is not None:
            _save_active_agent(run, run.agent)
        _activate(run)


async def hand_off_if_requested(run: ActiveRun) -> Blocked | None:
    """Let the requested agent take over. If it can't, return the reason; the thread's agent stays."""
    requested = _requested(run)
    if requested is None or requested == run.agent.spec.id:
        return None
    found = await run.agents.at_version(requested, None)
    if isinstance(found, UnknownAgentVersion):
        return _refused(run, found.reason)
    if isinstance(found, RemoteAgent):
        return _refused(
            run, f"agent {requested!r} is executed by a remote server and can't take over a run"
        )
    if Limit.COST_USD in run.usage_meter.limits.requested and not await _has_price(run, found):
        return _refused(
            run, f"the run has a limit of its cost, and {found.model.name} has no price"
        )
    _deactivate(run)
    run.agent = found
    run.state.register(found.plugins.keys)
    run.change_state(ChangeBatch([Change(REQUESTED_AGENT, None)]))
    _save_active_agent(run, found)
    _activate(run)
    return None


async def _has_price(run: ActiveRun, agent: ResolvedAgent) -> bool:
    await agent.prices.load()
    return agent.prices.cost(agent.model.name, BilledTokens(), run.clock.now()) is not None


def _requested(run: ActiveRun) -> AgentId | None:
    """The agent that takes over. Older releases stored the request in the thread's state."""
    requested = run.state.snapshot.get(REQUESTED_AGENT)
    in_thread = run.state.snapshot.get(ACTIVE_AGENT)
    if requested is None and in_thread is not None and in_thread.get("version") is None:
        return AgentId(in_thread["agent_id"])
    return requested


def _refused(run: ActiveRun, reason: str) -> Blocked:
    """Return the reason as `Blocked`, and reset a request that an older release stored in the thread's state."""
    in_thread = run.state.snapshot.get(ACTIVE_AGENT)
    if in_thread is not None and in_thread.get("version") is None:
        _save_active_agent(run, run.agent)
    return Blocked(f"handoff resolve failed: {reason}")


def _save_active_agent(run: ActiveRun, agent: ResolvedAgent) -> None:
    entry = {"agent_id": agent.spec.id, "version": agent.spec.version}
    run.change_state(ChangeBatch([Change(ACTIVE_AGENT, entry)]))


def _activate(run: ActiveRun) -> None:
    for plugin in run.agent.plugins.plugins:
        if plugin.on_activate is not None:
            run.change_state(ChangeBatch(plugin.on_activate(run.agent.spec, run.state.snapshot)))


def _deactivate(run: ActiveRun) -> None:
    for plugin in run.agent.plugins.plugins:
        if plugin.on_deactivate is not None:
            run.change_state(ChangeBatch(plugin.on_deactivate(run.state.snapshot)))
