"""Two agents that hand a run to each other, and count its steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.domain.agents.specs import AgentSpec, ToolExecution
from app.domain.ids import AgentId, AgentVersion
from app.domain.structs import replace
from app.llm.scripted.model import Script
from app.runtime.agent import ResolvedAgent, UnknownAgentVersion
from app.runtime.plugins import HandOff, HookView, Phase, Plugin, PluginSet, Request
from app.runtime.state import Change, StateKey
from tests.support.watching import Watch, WatchedModel, WatchedTool

TEAM = (AgentId("tester"), AgentId("other"))
STEPS_ENDED: StateKey[int, int] = StateKey(
    "test.steps_ended", lambda: 0, apply=lambda before, more: before + more
)


@dataclass(frozen=True, slots=True)
class Team:
    """The agents of one execution; each hands the run off after the steps in `passes`."""

    spec: AgentSpec
    tools: Mapping[str, WatchedTool]
    script: Script
    passes: frozenset[int]
    tool_execution: ToolExecution
    watch: Watch

    async def at_version(
        self, agent_id: AgentId, version: AgentVersion | None
    ) -> ResolvedAgent | UnknownAgentVersion:
        assert agent_id in TEAM
        return ResolvedAgent(
            spec=replace(self.spec, id=agent_id, tool_execution=self.tool_execution),
            model=WatchedModel(agent_id, self.script, self.watch),
            tools=dict(self.tools),
            plugins=PluginSet([self._plugin(agent_id)]),
        )

    def _plugin(self, agent_id: AgentId) -> Plugin:
        async def pass_on(view: HookView) -> Sequence[Request]:
            await self.watch.point()
            await self.watch.a_moment()
            counted = Change(STEPS_ENDED, 1)
            other = TEAM[1 - TEAM.index(agent_id)]
            return [counted, HandOff(other)] if view.steps in self.passes else [counted]

        async def look(_: HookView) -> Sequence[Request]:
            await self.watch.point()
            await self.watch.a_moment()
            return []

        hooks = {**dict.fromkeys(Phase, look), Phase.STEP_END: pass_on}
        return Plugin(name="relay", keys=(STEPS_ENDED,), hooks=hooks)
