"""The plugin of agents with skills: it has their tools, and the state key of the skill in use."""

from collections.abc import Mapping, Sequence

from app.domain.agents.specs import AgentSpec
from app.runtime.plugins import Plugin
from app.runtime.skills.skill_in_use import SKILL_IN_USE
from app.runtime.state import Change, StateView
from app.tools.skills.skill import Skill
from app.tools.skills.tools import skill_tools


def skills_plugin(spec: AgentSpec, known: Mapping[str, Skill]) -> Plugin:
    """The plugin of an agent whose skills are all known."""
    skills = {each.name: known[each.name] for each in spec.skills}
    return Plugin(
        name="skills",
        keys=[SKILL_IN_USE],
        tools=skill_tools(skills, spec.script_timeout),
        on_deactivate=_no_skill_in_use,
    )


def _no_skill_in_use(_: StateView) -> Sequence[Change]:
    """After a hand-off the other agent begins without a skill, although it may have the same one."""
    return [Change(SKILL_IN_USE, "")]
