"""A pytest plugin that runs chosen tests in forked processes, with one changed module each: `-p tests.mutation.forking`.

The tests are imported and collected once, and one Postgres serves all of them. For each request a fork puts
the changed code into the loaded functions and runs the tests until one fails.
"""

import gc
import json
import os
import resource
import select
import signal
from collections.abc import Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import NoReturn

import pytest

from tests.mutation.patching import loaded_functions, patch, replaced_code

REQUESTS = "MUTATION_REQUESTS"
ANSWERS = "MUTATION_ANSWERS"
ROOT = Path(__file__).parents[2]
READY = "tests/mutation/ready.py"
TIMEOUT_SECONDS = 300.0
# A change may cause an endless loop that allocates.
MAX_MEMORY = 4 * 1024**3


class Outcome(Enum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_PATCHABLE = "not patchable"


_EXIT_CODES = {0: Outcome.PASSED, 1: Outcome.FAILED, 3: Outcome.NOT_PATCHABLE}


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    if session.testsfailed:
        raise session.Interrupted("a test file can't be collected")
    for path in sorted((ROOT / "app").rglob("*.py")):
        if path.relative_to(ROOT).parts[1] in ("domain", "runtime"):
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    ready, *items = sorted(session.items, key=lambda item: not item.nodeid.startswith(READY))
    # The fixtures of the session stay open, because another test follows.
    ready.config.hook.pytest_runtest_protocol(item=ready, nextitem=items[0])
    if session.testsfailed:
        raise session.Interrupted("the database can't be started")
    _serve(session, items)
    return True


def _serve(session: pytest.Session, items: Sequence[pytest.Item]) -> None:
    functions = loaded_functions(f"{ROOT / 'app'}{os.sep}")
    by_id = {item.nodeid: item for item in items}
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.nodeid.partition("::")[0], []).append(item)
    with (
        os.fdopen(int(os.environ[REQUESTS])) as requests,
        os.fdopen(int(os.environ[ANSWERS]), "w") as answers,
    ):
        # Objects that no collection touches stay shared with the forks.
        gc.freeze()
        answers.write("ready\n")
        answers.flush()
        for line in requests:
            request = json.loads(line)
            chosen = [
                item
                for test in request["tests"]
                for item in ([by_id[test]] if test in by_id else by_file.get(test, []))
            ]
            path = str(ROOT / request["module"])
            outcome = _in_fork(session, chosen, path, request["source"], functions.get(path, []))
            answers.write(f"{outcome.value}\n")
            answers.flush()


def _in_fork(
    session: pytest.Session,
    items: Sequence[pytest.Item],
    path: str,
    source: str,
    functions: list[FunctionType],
) -> Outcome:
    process = os.fork()
    if process == 0:
        _run(session, items, path, source, functions)
    pidfd = os.pidfd_open(process)
    try:
        has_ended, _, _ = select.select([pidfd], [], [], TIMEOUT_SECONDS)
        if not has_ended:
            os.killpg(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
    finally:
        os.close(pidfd)
    return _EXIT_CODES.get(os.waitstatus_to_exitcode(status), Outcome.FAILED)


def _run(
    session: pytest.Session,
    items: Sequence[pytest.Item],
    path: str,
    source: str,
    functions: list[FunctionType],
) -> NoReturn:
    """Run the tests in this forked process, which ends with the result as its exit code."""
    code = 3
    try:
        os.setpgid(0, 0)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        patch(functions, replaced_code(path, Path(path).read_text(), source))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
        code = 1
        for item in items:
            # With a next test, the fixtures of the session stay open.
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=session.items[0])
            if session.testsfailed:
                break
        else:
            code = 0
    finally:
        os._exit(code)
