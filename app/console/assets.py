"""The built files of the console. Their names have a hash of their content, so browsers keep them."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class PageFiles(Struct, frozen=True):
    """The names of a page's files."""

    script: str
    preload: Sequence[str]
    """Modules that the script imports."""


class Assets(Struct, frozen=True):
    """The files of one build."""

    folder: Path
    names: frozenset[str]
    pages: Mapping[str, PageFiles]
    style: str
    theme: str
    """A script that runs before the first paint."""
    icon: str

    def content(self, name: str, *, compressed: bool) -> bytes:
        """The bytes of a file. The build has written its gzip beside it."""
        return _read(self.folder / (f"{name}.gz" if compressed else name))


def load_assets(folder: Path = FOLDER) -> Assets | None:
    """The files of the last build; None if the console isn't built."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except FileNotFoundError:
        return None
    return Assets(
        folder=folder,
        names=frozenset(manifest["names"]),
        pages={name: PageFiles(**files) for name, files in manifest["pages"].items()},
        style=manifest["style"],
        theme=manifest["theme"],
        icon=manifest["icon"],
    )


def media_type(name: str) -> str:
    return _TYPES[Path(name).suffix]


@cache
def _read(path: Path) -> bytes:
    return path.read_bytes()
