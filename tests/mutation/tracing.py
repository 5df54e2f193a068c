"""A pytest plugin that writes which tests reach which lines of `app/`: `-p tests.mutation.tracing`."""

import json
import os
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

FOLDER = "MUTATION_TRACE_FOLDER"
# Lines that run while a module is imported belong to no test.
IMPORT = ""

Line = tuple[str, int]


class Tracer:
    """Collects the lines that each test reaches."""

    def __init__(self, root: Path) -> None:
        self._prefix = f"{root / 'app'}{os.sep}"
        self._cut = len(str(root)) + 1
        self._is_wanted: dict[str, bool] = {}
        self._lines: set[Line] = set()
        self.reached: dict[str, set[Line]] = {IMPORT: self._lines}

    def begin(self, test: str) -> None:
        self._lines = self.reached.setdefault(test, set())

    def enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        wanted = self._is_wanted.get(name)
        if wanted is None:
            wanted = self._is_wanted[name] = name.startswith(self._prefix)
        return self._at_line if wanted else None

    def _at_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        # Instructions that the compiler has added belong to no line.
        if frame.f_lineno is not None:
            self._lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._at_line

    def by_line(self) -> dict[str, dict[int, list[str]]]:
        """By module and line: the tests that reach it, the most specific first."""
        found: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for test in sorted(self.reached, key=lambda each: len(self.reached[each])):
            for name, line in self.reached[test]:
                found[name[self._cut :]][line].append(test)
        return found


tracer = Tracer(Path(__file__).parents[2])


def pytest_configure(config: pytest.Config) -> None:
    threading.settrace(tracer.enter)
    sys.settrace(tracer.enter)


def pytest_runtest_logstart(nodeid: str) -> None:
    tracer.begin(nodeid)
    # Python removes a tracer that raised, as in a test of endless recursion.
    sys.settrace(tracer.enter)


def pytest_sessionfinish(session: pytest.Session) -> None:
    sys.settrace(None)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    (Path(os.environ[FOLDER]) / f"{worker}.json").write_text(json.dumps(tracer.by_line()))
