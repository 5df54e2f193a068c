"""Reads a skill from its folder."""

from pathlib import Path

from app.domain.agents.skills import SkillSpec
from app.tools.skills.files import digest_of, files_of
from app.tools.skills.front_matter import BadSkill, read_skill_text
from app.tools.skills.skill import SKILL_FILE, Skill

MAX_SKILL_BYTES = 100_000
"""Of `SKILL.md`."""


def skills_folder(agents_file: Path) -> Path:
    """Where the skills of an agents file are: beside it."""
    return agents_file.parent / "skills"


def load_skill_folder(folder: Path) -> Skill:
    """The skill of a folder that has the skill's name. Raises BadSkill."""
    head, instructions = read_skill_text(_text_of(folder / SKILL_FILE))
    if head.name != folder.name:
        raise BadSkill(
            f"its name is {head.name!r} and its folder is {folder.name!r}; give both the same name",
            head.lines["name"],
        )
    if not instructions:
        raise BadSkill("has no instructions; write them below the front matter")
    try:
        files = files_of(folder)
        digest = digest_of(folder, files)
    except OSError as error:
        raise BadSkill(f"its files can't be read ({error.strerror}); correct that") from error
    return Skill(
        spec=SkillSpec(
            name=head.name,
            description=" ".join(head.description.split()),
            digest=digest,
            allowed_tools=head.allowed_tools,
        ),
        instructions=instructions,
        folder=folder.resolve(),
        files=tuple(each for each in files if each != SKILL_FILE),
        license=head.license,
        metadata=head.metadata,
        lines=head.lines,
    )


def _text_of(file: Path) -> str:
    if file.is_symlink():
        raise BadSkill("is a link; put the file itself there")
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_SKILL_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise BadSkill(f"can't be read ({reason}); create it or correct that") from error
    if len(content) > MAX_SKILL_BYTES:
        raise BadSkill(
            f"has more than {MAX_SKILL_BYTES:,} bytes; move parts to other files of the skill"
        )
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise BadSkill("isn't UTF-8 text; save it as UTF-8") from error
