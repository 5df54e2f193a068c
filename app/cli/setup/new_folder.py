"""`holdfast init`: writes a folder with agents, tools and a test, which works without a key."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from app.domain.errors import ConfigurationError

_TEMPLATE = "app.cli.setup"
_NAMES = {
    "agents.toml": "agents.toml",
    "tools.py": "tools.py.txt",
    "agents_test.py": "agents_test.py.txt",
    "requirements.txt": "requirements.txt",
    ".gitignore": "gitignore.txt",
    "README.md": "README.md",
}
"""Each file, and its name in the template folder. The names differ where Python or git would use the template
as a file of Holdfast itself."""


def write_agents_folder(folder: Path) -> list[Path]:
    """Write the files and return their paths. Writes nothing if one of them exists."""
    present = [path.name for path in _paths(folder) if path.exists() or path.is_symlink()]
    if present:
        raise ConfigurationError(
            f"{folder} has {', '.join(present)} already, and nothing was written. Name another folder: "
            "holdfast init FOLDER"
        )
    template = files(_TEMPLATE) / "template"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, source in zip(_paths(folder), _NAMES.values(), strict=True):
            # "x": a file that another process has just made isn't overwritten either.
            with path.open("x") as file:
                file.write((template / source).read_text())
    except OSError as error:
        raise ConfigurationError(f"{folder} can't be written: {error}") from error
    return list(_paths(folder))


def _paths(folder: Path) -> Iterator[Path]:
    return (folder / name for name in _NAMES)
