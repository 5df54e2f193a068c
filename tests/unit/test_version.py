"""The version of the distribution."""

import tomllib
from pathlib import Path

from app.distribution import VERSION

ROOT = Path(__file__).parents[2]


def test_the_version_is_written_in_the_project_file_alone() -> None:
    written = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert written == VERSION
    literal = f'"{written}"'
    assert not [str(file) for file in ROOT.glob("app/**/*.py") if literal in file.read_text()]
