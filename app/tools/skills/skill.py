"""One skill, as it was when the agents file was loaded."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from app.domain.agents.skills import SkillSpec

SKILL_FILE = "SKILL.md"
SCRIPTS_FOLDER = "scripts"


class Skill(Struct, frozen=True, kw_only=True):
    """`spec` is what agents store of it. `files` are the other files, as sorted paths within the folder."""

    spec: SkillSpec
    instructions: str
    """The text of `SKILL.md` below its front matter."""
    folder: Path
    files: Sequence[str] = ()
    license: str | None = None
    metadata: Mapping[str, str] = {}
    lines: Mapping[str, int] = {}
    """The lines of the keys in `SKILL.md`, for messages about them."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def scripts(self) -> list[str]:
        return [each for each in self.files if each.startswith(f"{SCRIPTS_FOLDER}/")]
