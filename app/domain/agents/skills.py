"""The skills of an agent: what its version and its system prompt say about them."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.domain.rules.globs import Glob

LOAD_SKILL, READ_SKILL_FILE, RUN_SKILL_SCRIPT = "load_skill", "read_skill_file", "run_skill_script"
SKILL_TOOLS = frozenset({LOAD_SKILL, READ_SKILL_FILE, RUN_SKILL_SCRIPT})
"""The tools of agents with skills. Every skill allows them."""
_HEAD = (
    "You have skills: instructions for certain tasks. Before you begin a task that one of them describes,"
    f" load it with {LOAD_SKILL}."
)


class SkillSpec(Struct, frozen=True, kw_only=True):
    """One skill of an agent. `digest` is that of all files of the skill, so a change makes a new version."""

    name: str
    description: str
    digest: str
    allowed_tools: tuple[str, ...] | None = None
    """Globs of the tools that may be called while the skill is in use; None allows all."""

    def allows(self, tool: str) -> bool:
        if self.allowed_tools is None or tool in SKILL_TOOLS:
            return True
        return any(Glob(text).fits(tool) for text in self.allowed_tools)


def with_skills(system_prompt: str, skills: Sequence[SkillSpec]) -> str:
    """The system prompt with the names and descriptions of the skills. It is the same at each step."""
    if not skills:
        return system_prompt
    listed = "\n".join([_HEAD, *(f"- {skill.name}: {skill.description}" for skill in skills)])
    return f"{system_prompt}\n\n{listed}" if system_prompt else listed


def skill_to_json(skill: SkillSpec) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": skill.name,
        "description": skill.description,
        "digest": skill.digest,
    }
    if skill.allowed_tools is not None:
        body["allowed_tools"] = list(skill.allowed_tools)
    return body


def skill_from_json(raw: Mapping[str, Any]) -> SkillSpec:
    allowed = raw.get("allowed_tools")
    return SkillSpec(
        name=raw["name"],
        description=raw["description"],
        digest=raw["digest"],
        allowed_tools=None if allowed is None else tuple(allowed),
    )
