"""Notices changes of a folder's Python and TOML files, and of its skills, by their times and sizes."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

_SUFFIXES = (".py", ".toml")
"""Other files aren't watched, because tools may write them. Of skills, all are."""
_SKIPPED = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})
_SETTLE_SECONDS = 0.2
"""Editors write several files, and each in several steps."""


class FolderWatch:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = dict(_states(folder))

    def changes(self, sleep: Callable[[float], None] = time.sleep) -> list[str]:
        """The files that have changed since the last call. Waits until they no longer change."""
        seen = dict(_states(self._folder))
        if seen == self._known:
            return []
        while True:
            sleep(_SETTLE_SECONDS)
            latest = dict(_states(self._folder))
            if latest == seen:
                break
            seen = latest
        before, self._known = self._known, latest
        return sorted(_different(before, latest))


def _different(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    return (name for name in before.keys() | after if before.get(name) != after.get(name))


def _states(folder: Path) -> Iterator[tuple[str, tuple[int, int, int]]]:
    skills = os.path.join(folder, "skills", "")
    for root, folders, names in os.walk(folder):
        is_of_skill = root.startswith(skills)
        folders[:] = [name for name in folders if name not in _SKIPPED and name[0] != "."]
        for name in names:
            if (is_of_skill or name.endswith(_SUFFIXES)) and name[0] != ".":
                path = os.path.join(root, name)
                try:
                    info = os.stat(path)
                except OSError:  # removed meanwhile
                    continue
                yield os.path.relpath(path, folder), (info.st_mtime_ns, info.st_size, info.st_ino)
