"""The tools of agents with skills: load a skill, read one of its files, and run one of its scripts."""

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from app.domain.agents.skills import LOAD_SKILL, READ_SKILL_FILE, RUN_SKILL_SCRIPT
from app.domain.json_values import digest
from app.domain.structs import replace
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Tool
from app.runtime.skills.skill_in_use import SKILL_IN_USE
from app.tools.functions.decorator import tool
from app.tools.functions.failure import ToolFailed
from app.tools.skills.files import NoSuchSkillFile, digest_of, files_of, path_in, read_text
from app.tools.skills.front_matter import BadSkill
from app.tools.skills.scripts import CantRun, ScriptEnd, run_script
from app.tools.skills.skill import Skill

MAX_FILE_BYTES = 100_000
"""What a call returns of a file."""
MAX_ARGUMENTS, MAX_ARGUMENT_CHARACTERS = 100, 10_000
_SECONDS_TO_END = 30.0
"""How much longer than its script a call may take, until its processes have ended."""
_MAX_SHOWN_CHARACTERS = 500
"""Of the output of a script that was ended."""


def skill_tools(skills: Mapping[str, Skill], timeout: float) -> list[Tool]:
    """The tools for these skills. Without a script, there is none that runs scripts."""
    calls = _Calls(skills, timeout)

    @tool(name=LOAD_SKILL, effect="read")
    async def load(name: str, ctx: ToolContext) -> str:
        """Load a skill: returns its instructions and the paths of its files. Then follow the instructions.

        Args:
            name: The name of the skill.
        """
        return calls.load(name, ctx)

    @tool(name=READ_SKILL_FILE, effect="read")
    async def read(skill: str, path: str) -> str:
        """Read a text file of a skill.

        Args:
            skill: The name of the skill.
            path: The path of the file, as load_skill returned it.
        """
        return await calls.read(skill, path)

    @tool(name=RUN_SKILL_SCRIPT, timeout=timeout + _SECONDS_TO_END, approval=calls.question)
    async def run(skill: str, script: str, arguments: list[str] | None = None) -> dict[str, Any]:
        """Run a script of a skill, after a person has approved it. Returns its exit code and its output.

        Args:
            skill: The name of the skill.
            script: The path of the script, such as scripts/convert.py.
            arguments: The arguments of the script.
        """
        return await calls.run(skill, script, arguments or [])

    if not any(skill.scripts for skill in skills.values()):
        return [load, read]
    # An approval is for these files: after a change, a person is asked again.
    pinned = digest({name: skill.spec.digest for name, skill in skills.items()})
    return [load, read, replace(run, descriptor=replace(run.descriptor, digest=pinned))]


class _Calls(Struct, frozen=True):
    """What the tools do."""

    skills: Mapping[str, Skill]
    timeout: float

    def load(self, name: str, ctx: ToolContext) -> str:
        skill = self._skill(name)
        ctx.update(SKILL_IN_USE, skill.name)
        return _loaded(skill)

    async def read(self, name: str, path: str) -> str:
        skill = self._skill(name)
        if path not in skill.files:
            raise _failed("no_skill_file", f"there is no file {path!r}. There are: {_files(skill)}")
        try:
            text, is_whole = await asyncio.to_thread(read_text, skill.folder, path, MAX_FILE_BYTES)
        except (NoSuchSkillFile, OSError) as error:
            raise _failed("no_skill_file", str(error)) from None
        return text if is_whole else f"{text}\n[Only the first {MAX_FILE_BYTES:,} bytes are here]"

    def question(self, arguments: dict[str, Any]) -> str | None:
        """The question for the person. A call without an existing script fails, so it needs no decision."""
        skill, script = self.skills.get(arguments["skill"]), arguments["script"]
        if skill is None or script not in skill.scripts:
            return None
        command = " ".join([script, *map(repr, arguments.get("arguments") or [])])
        return f"Run {command} of the skill '{skill.name}'?"

    async def run(self, name: str, script: str, arguments: list[str]) -> dict[str, Any]:
        skill = self._skill(name)
        if script not in skill.scripts:
            scripts = ", ".join(skill.scripts) or "none"
            raise _failed("no_skill_script", f"there is no script {script!r}. There are: {scripts}")
        if len(arguments) > MAX_ARGUMENTS or sum(map(len, arguments)) > MAX_ARGUMENT_CHARACTERS:
            most = f"{MAX_ARGUMENTS} arguments with {MAX_ARGUMENT_CHARACTERS:,} characters"
            raise _failed("invalid_script_arguments", f"a script gets at most {most} together")
        try:
            path = path_in(skill.folder, script)
            if await asyncio.to_thread(_digest_now, skill) != skill.spec.digest:
                raise _failed(
                    "skill_changed",
                    f"the files of the skill {skill.name!r} have changed since the server started."
                    " The server has to be restarted before its scripts run",
                )
            end = await run_script(path, arguments, folder=skill.folder, timeout=self.timeout)
        except (NoSuchSkillFile, CantRun, BadSkill, OSError) as error:
            raise _failed("skill_script_failed", str(error)) from None
        return _report(end, self.timeout)

    def _skill(self, name: str) -> Skill:
        skill = self.skills.get(name)
        if skill is None:
            known = ", ".join(self.skills)
            raise _failed("no_skill", f"there is no skill {name!r}. There are: {known}")
        return skill


def _failed(code: str, message: str) -> ToolFailed:
    return ToolFailed(code, message, may_be_retried=False)


def _files(skill: Skill) -> str:
    return ", ".join(skill.files) or "none"


def _loaded(skill: Skill) -> str:
    parts = [f"# Skill {skill.name}", skill.instructions]
    if skill.files:
        parts.append(f"Its files, for {READ_SKILL_FILE}: {_files(skill)}.")
    if skill.scripts:
        parts.append(
            f"{RUN_SKILL_SCRIPT} runs those in scripts/, in an empty folder. SKILL_DIR is the skill's folder."
        )
    if skill.spec.allowed_tools is not None:
        allowed = ", ".join(skill.spec.allowed_tools)
        parts.append(f"While this skill is in use, you may call only: {allowed}.")
    return "\n\n".join(parts)


def _digest_now(skill: Skill) -> str:
    return digest_of(skill.folder, files_of(skill.folder))


def _report(end: ScriptEnd, timeout: float) -> dict[str, Any]:
    if end.exit_code is None:
        shown = (end.output + end.errors)[:_MAX_SHOWN_CHARACTERS]
        raise _failed(
            "skill_script_timeout", f"the script was ended after {timeout:g} s. It printed: {shown}"
        )
    return {"exit_code": end.exit_code, "output": end.output, "errors": end.errors}
