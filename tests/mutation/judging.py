"""Applies one change to a copy of the tree, and runs the tests that could notice it."""

import os
import resource
import signal
import subprocess
import sys
from enum import Enum
from pathlib import Path

from tests.mutation.changes import Change
from tests.mutation.fast_tests import FastTests
from tests.mutation.forking import Outcome
from tests.mutation.reached import ReachedLines
from tests.mutation.subjects import Subjects

TIMEOUT_SECONDS = 300.0
# A change may cause an endless loop: limit its time and its memory.
TEST_TIMEOUT_SECONDS = 20
MAX_MEMORY = 4 * 1024**3


class Verdict(Enum):
    BY_FAST = "noticed by fast tests"
    BY_SLOW = "noticed by slower tests"
    SURVIVED = "not noticed"


class Judge:
    def __init__(self, subjects: Subjects, reached: ReachedLines, with_slow: bool) -> None:
        self._subjects = subjects
        self._reached = reached
        self._with_slow = with_slow

    def verdict(self, tree: Path, fast_tests: FastTests, change: Change) -> Verdict:
        target = tree / change.module
        original = target.read_text()
        changed = change.applied(original)
        forked = self._in_fork(fast_tests, change, changed)
        if forked is Outcome.FAILED:
            return Verdict.BY_FAST
        target.write_text(changed)
        try:
            if forked is Outcome.NOT_PATCHABLE:
                fast = self._subjects.fast_tests(change.module)
                if not _passes(tree, fast, MAX_MEMORY):
                    return Verdict.BY_FAST
            slow = self._subjects.slow_tests(change.module) if self._with_slow else []
            if slow and not _passes(tree, slow):
                return Verdict.BY_SLOW
            return Verdict.SURVIVED
        finally:
            target.write_text(original)

    def _in_fork(self, fast_tests: FastTests, change: Change, source: str) -> Outcome:
        """The outcome of the tests that reach the line. A line of a module's import may concern every
        test, and what it has computed is computed again only by a new process."""
        if self._reached.is_reached_by_import(change.module, change.line):
            return Outcome.NOT_PATCHABLE
        tests = self._reached.tests(change.module, change.line)
        return fast_tests.outcome(change.module, source, tests)


def _passes(tree: Path, tests: list[str], memory: int | None = None) -> bool:
    """Whether all tests pass; a time-out counts as noticed."""
    # One process keeps the order of the tests: those about the module come first.
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "--no-header"]
    command += ["-p", "no:cacheprovider", f"--timeout={TEST_TIMEOUT_SECONDS}", *tests]
    process = subprocess.Popen(
        command,
        cwd=tree,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if memory is not None and sys.platform == "linux":
        resource.prlimit(process.pid, resource.RLIMIT_AS, (memory, memory))
    try:
        return process.wait(TIMEOUT_SECONDS) == 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False
