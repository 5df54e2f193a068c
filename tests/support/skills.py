"""Writes folders of skills beside an agents file."""

from collections.abc import Mapping
from pathlib import Path

REPORT = """---
name: report
description: Write the weekly report.
---
Read style.md first. Then write the report.
"""


def write_skill(
    folder: Path, text: str = REPORT, *, name: str = "report", files: Mapping[str, str] = {}
) -> Path:
    """Write the skill beside the agents file of this folder."""
    place = folder / "skills" / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "SKILL.md").write_text(text)
    for path, content in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(content)
    return place


def skill_text(name: str = "report", more: str = "", body: str = "Do it well.") -> str:
    lines = ["---", f"name: {name}", f"description: About {name}.", *more.splitlines(), "---", body]
    return "\n".join(lines)
