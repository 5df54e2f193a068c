"""Hand-off: another agent goes on with the run, from a step's border.

Who is at work is state of the thread, with its version: it holds after a crash and a suspension, and the
thread's next run begins with the same agent when its start names none.
"""

from typing import Any

from app.domain.ids import AgentId, AgentVersion
from app.domain.json_values import JsonObject
from app.domain.terminations import Blocked
from app.runtime.agent import RemoteAgent, ResolvedAgent, Unresolvable
from app.runtime.context import ActiveRun
from app.runtime.state import Batch, Change, StateKey, StateScope

ACTIVE_AGENT: StateKey[JsonObject | None, JsonObject | None] = StateKey(
    "__runtime.active_agent", lambda: None, scope=StateScope.THREAD
)


def wish_for(agent_id: AgentId) -> Change:
    """Ask for another agent; the newest wish counts."""
    return Change(ACTIVE_AGENT, {"agent_id": agent_id})


def agent_at_work(thread_state: JsonObject) -> tuple[AgentId, AgentVersion | None] | None:
    """Who was at work on a thread, by what it remembers."""
    remembered = thread_state.get(ACTIVE_AGENT.name)
    if remembered is None:
        return None
    version = remembered.get("version")
    return AgentId(remembered["agent_id"]), None if version is None else AgentVersion(version)


def take_up_work(run: ActiveRun) -> None:
    """A new run begins with the agent that it was started with, whoever was at work before it."""
    run.state.register([ACTIVE_AGENT])
    if run.is_fresh:
        if run.state.snapshot.get(ACTIVE_AGENT) is not None:
            _remember(run, run.agent)
        _activate(run)


async def hand_off_if_wished(run: ActiveRun) -> Blocked | None:
    """Let the agent that is wished for go on; or why it can't."""
    wish = run.state.snapshot.get(ACTIVE_AGENT)
    if wish is None or wish["agent_id"] == run.agent.spec.id:
        return None
    version: Any = wish.get("version")
    found = await run.agents.at_version(AgentId(wish["agent_id"]), version)
    if isinstance(found, Unresolvable):
        return Blocked(f"handoff resolve failed: {found.reason}")
    if isinstance(found, RemoteAgent):
        return Blocked(
            f"handoff resolve failed: agent {found.spec.id!r} is executed elsewhere and can't take over"
        )
    _deactivate(run)
    run.agent = found
    run.state.register(found.plugins.keys)
    _remember(run, found)
    _activate(run)
    return None


def _remember(run: ActiveRun, agent: ResolvedAgent) -> None:
    at_work = {"agent_id": agent.spec.id, "version": agent.spec.version}
    run.change_state(Batch([Change(ACTIVE_AGENT, at_work)]))


def _activate(run: ActiveRun) -> None:
    for plugin in run.agent.plugins.plugins:
        if plugin.on_activate is not None:
            run.change_state(Batch(plugin.on_activate(run.agent.spec, run.state.snapshot)))


def _deactivate(run: ActiveRun) -> None:
    for plugin in run.agent.plugins.plugins:
        if plugin.on_deactivate is not None:
            run.change_state(Batch(plugin.on_deactivate(run.state.snapshot)))
