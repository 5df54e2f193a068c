"""Asks a process that has collected the fast tests whether they notice a change."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.mutation.forking import ANSWERS, READY, REQUESTS, Outcome
from tests.mutation.subjects import FAST


class FastTests:
    """One such process; it answers one request at a time."""

    def __init__(self, root: Path) -> None:
        requests_read, requests_write = os.pipe()
        answers_read, answers_write = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-n0", "--no-header", "--timeout=20"]
            + ["-p", "no:cacheprovider", "-p", "tests.mutation.forking", READY, *FAST],
            cwd=root,
            env={**os.environ, REQUESTS: str(requests_read), ANSWERS: str(answers_write)},
            stdout=subprocess.DEVNULL,
            pass_fds=(requests_read, answers_write),
        )
        os.close(requests_read)
        os.close(answers_write)
        self._requests = os.fdopen(requests_write, "w")
        self._answers = os.fdopen(answers_read)
        self._is_ready = False

    def outcome(self, module: Path, source: str, tests: Sequence[str]) -> Outcome:
        """The outcome of these tests with another source of one module."""
        if not self._is_ready:
            self._answer()
            self._is_ready = True
        request = {"module": str(module), "source": source, "tests": tests}
        self._requests.write(f"{json.dumps(request)}\n")
        self._requests.flush()
        return Outcome(self._answer())

    def _answer(self) -> str:
        line = self._answers.readline()
        if not line:
            raise RuntimeError("the process of the fast tests has ended")
        return line.strip()

    def __enter__(self) -> "FastTests":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._requests.close()
        self._process.wait()
        self._answers.close()
