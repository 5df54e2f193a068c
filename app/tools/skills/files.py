"""The files of a skill's folder: a bounded list, a digest of all, and reading one without leaving the folder."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from app.tools.skills.front_matter import BadSkill

MAX_FILES = 500
MAX_BYTES = 20 << 20
"""Of all files of a skill together."""
_SKIPPED = frozenset({"__pycache__", "node_modules"})
_PIECE = 1 << 16


class NoSuchSkillFile(Exception):
    """The path isn't a readable file of the skill; the message says why."""


def files_of(folder: Path) -> list[str]:
    """The paths of all files in the folder, sorted. Links, hidden files, and names that can't be printed are left out."""
    found: list[str] = []
    for root, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if each not in _SKIPPED and each[0] != "."]
        for name in names:
            path = Path(root, name)
            is_named_well = name[0] != "." and path.relative_to(folder).as_posix().isprintable()
            if is_named_well and path.is_file() and not path.is_symlink():
                found.append(path.relative_to(folder).as_posix())
        if len(found) > MAX_FILES:
            raise BadSkill(f"its folder has more than {MAX_FILES} files; remove some")
    return sorted(found)


def digest_of(folder: Path, files: Sequence[str]) -> str:
    """A digest of the paths and contents of these files."""
    digest, size = hashlib.sha256(), 0
    for name in files:
        digest.update(f"{name}\0".encode())
        content = hashlib.sha256()
        with (folder / name).open("rb") as file:
            while piece := file.read(_PIECE):
                content.update(piece)
                size += len(piece)
                if size > MAX_BYTES:
                    raise BadSkill(f"its files have more than {MAX_BYTES >> 20} MiB; remove some")
        digest.update(content.digest())
    return f"sha256:{digest.hexdigest()}"


def path_in(folder: Path, name: str) -> Path:
    """The file of this path within the folder. Raises NoSuchSkillFile for any other."""
    root = folder.resolve()
    path = (root / name).resolve()
    if path == root or not path.is_relative_to(root):
        raise NoSuchSkillFile(f"{name!r} isn't in the folder of the skill")
    if not path.is_file():
        raise NoSuchSkillFile(f"there is no file {name!r} any more")
    return path


def read_text(folder: Path, name: str, most: int) -> tuple[str, bool]:
    """At most so many bytes of a text file, and whether that is all of it."""
    with path_in(folder, name).open("rb") as file:
        head = file.read(most + 1)
    is_whole = len(head) <= most
    try:
        if b"\0" in head:
            raise NoSuchSkillFile(f"{name!r} isn't a text")
        return head[:most].decode(errors="strict" if is_whole else "ignore"), is_whole
    except UnicodeDecodeError as error:
        raise NoSuchSkillFile(f"{name!r} isn't a text in UTF-8") from error
