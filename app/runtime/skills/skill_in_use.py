"""The skill that a run loaded last: state of the run, which narrows the tools that may be called."""

from app.domain.agents.skills import SkillSpec
from app.domain.agents.specs import AgentSpec
from app.runtime.state import MergeStrategy, StateKey, StateView


def _replaced(_: str, name: str) -> str:
    return name


SKILL_IN_USE: StateKey[str, str] = StateKey(
    "__runtime.skill_in_use", str, _replaced, merge=MergeStrategy.COMMUTATIVE
)
"""Its name, or empty before the first one is loaded."""


def skill_in_use(spec: AgentSpec, state: StateView) -> SkillSpec | None:
    if not spec.skills:
        return None
    name = state.get(SKILL_IN_USE)
    return next((skill for skill in spec.skills if skill.name == name), None)
