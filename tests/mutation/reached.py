"""Which fast tests reach a line: the suite runs once under a tracer, and the result is cached."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.mutation.subjects import FAST
from tests.mutation.tracing import FOLDER, IMPORT

TRACED = ("app", "tests/support", *FAST)


class ReachedLines:
    """For each line of `app/`: the fast tests that reach it, the most specific first."""

    def __init__(self, tests: dict[Path, dict[int, list[str]]]) -> None:
        self._tests = tests

    def tests(self, module: Path, line: int) -> list[str]:
        return [test for test in self._tests.get(module, {}).get(line, []) if test != IMPORT]

    def is_reached_by_import(self, module: Path, line: int) -> bool:
        return IMPORT in self._tests.get(module, {}).get(line, [])


def trace(root: Path, processes: int) -> ReachedLines:
    """Run the fast tests under the tracer, unless this very tree was traced before."""
    cached = Path(tempfile.gettempdir()) / f"holdfast-reached-{_digest(root)}"
    if not cached.exists():
        folder = Path(tempfile.mkdtemp(prefix="holdfast-tracing-"))
        # Tests of speed fail under the tracer, so the exit code is ignored.
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"-n{processes}", "--no-header"]
            + ["-p", "no:cacheprovider", "-p", "tests.mutation.tracing", *FAST],
            cwd=root,
            env={**os.environ, FOLDER: str(folder)},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        folder.rename(cached)
    return ReachedLines(_merged(cached))


def _merged(folder: Path) -> dict[Path, dict[int, list[str]]]:
    """What all test processes have written."""
    merged: dict[Path, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob("*.json")):
        for module, lines in json.loads(path.read_text()).items():
            for line, tests in lines.items():
                merged[Path(module)][int(line)] += tests
    return merged


def _digest(root: Path) -> str:
    content = hashlib.sha256(str(root).encode())
    for folder in TRACED:
        for path in sorted((root / folder).rglob("*.py")):
            content.update(path.read_bytes())
    return content.hexdigest()[:16]
