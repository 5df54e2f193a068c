"""The skills that agents name: loaded from the folder `skills` beside the agents file, and checked."""

from collections.abc import Collection, Mapping
from pathlib import Path

from app.agents.config_errors import ConfigErrors
from app.agents.delegation_checks import check_duplicates
from app.agents.file_schema import AgentEntry
from app.domain.agents.mcp_references import may_name_mcp_tool
from app.domain.agents.skills import RUN_SKILL_SCRIPT, SKILL_TOOLS
from app.domain.rules.globs import Glob
from app.domain.suggestions import did_you_mean
from app.tools.skills.front_matter import BadSkill
from app.tools.skills.loading import load_skill_folder, skills_folder
from app.tools.skills.skill import SKILL_FILE, Skill


def load_skills(
    path: Path, agents: Mapping[str, AgentEntry | None], problems: ConfigErrors
) -> dict[str, Skill]:
    """The skills that agents name. Adds the problems of each one once, at the first agent that names it."""
    folder = skills_folder(path)
    known = sorted(each.parent.name for each in folder.glob(f"*/{SKILL_FILE}"))
    found: dict[str, Skill | None] = {}
    for agent, entry in agents.items():
        for position, name in enumerate([] if entry is None else entry.skills):
            key = f"agents.{agent}.skills[{position}]"
            if name in found:
                continue
            found[name] = None
            if name not in known:
                problems.add(
                    key,
                    f"there is no skill {name!r}, {did_you_mean(name, known)};"
                    f" create skills/<name>/{SKILL_FILE} beside the agents file, or name another",
                )
                continue
            try:
                found[name] = load_skill_folder(folder / name)
            except BadSkill as error:
                problems.add(key, f"{_place(name, error.line)}: {error}")
    return {name: skill for name, skill in found.items() if skill is not None}


def skill_tools_of(entry: AgentEntry) -> list[str]:
    """The tools that the agent has by its skills. The tool for scripts is there if a skill has one."""
    return sorted(SKILL_TOOLS) if entry.skills else []


def check_skills(
    key: str,
    entry: AgentEntry,
    skills: Mapping[str, Skill],
    own: Collection[str],
    problems: ConfigErrors,
) -> None:
    """Refuse skills that are listed twice or allow an unknown tool, and tools with the names of skill tools."""
    check_duplicates(f"{key}.skills", entry.skills, problems)
    if not entry.skills:
        if "script_timeout" in entry.model_fields_set:
            problems.add(f"{key}.script_timeout", "means nothing without skills; remove it")
        return
    for position, name in enumerate(entry.tools):
        if name in SKILL_TOOLS:
            problems.add(
                f"{key}.tools[{position}]",
                f"{name!r} is a tool that agents with skills have besides; rename yours",
            )
    for position, name in enumerate(entry.skills):
        skill = skills.get(name)
        for text in () if skill is None else skill.spec.allowed_tools or ():
            if not may_name_mcp_tool(text, entry.tools) and not any(map(Glob(text).fits, own)):
                line = None if skill is None else skill.lines.get("allowed-tools")
                problems.add(
                    f"{key}.skills[{position}]",
                    f"{_place(name, line)}: allowed-tools: the agent has no tool {text!r},"
                    f" {did_you_mean(text, own)}; add it to the agent's tools or remove it there",
                )


def tools_that_ask(entry: AgentEntry) -> set[str]:
    return {RUN_SKILL_SCRIPT} if entry.skills else set()


def _place(name: str, line: int | None) -> str:
    place = f"skills/{name}/{SKILL_FILE}"
    return place if line is None else f"{place}, line {line}"
