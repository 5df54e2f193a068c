"""Samples one-token changes by a seed, runs the tests of each subject, and prints the score.

A change is noticed when a test fails, and survives when all pass. The fast tests come first; the
tests on Postgres run only for changes that those didn't notice.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.changes import Change, sample
from tests.mutation.subjects import Subjects

ROOT = Path(__file__).parents[2]
PACKAGES = ["domain", "runtime"]
TIMEOUT_SECONDS = 300.0
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "node_modules", "__pycache__", ".*_cache", ".hypothesis"
)


class Verdict(Enum):
    BY_FAST = "noticed by fast tests"
    BY_SLOW = "noticed by tests on Postgres"
    SURVIVED = "not noticed"


def main() -> int:
    options = _options()
    changes = sample(ROOT, options.packages, options.count, options.seed)
    if options.only is not None:
        changes = [change for change in changes if options.only in str(change)]
    with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.jobs):
            trees.put(shutil.copytree(ROOT, Path(folder) / str(number), ignore=NOT_COPIED))
        subjects = Subjects(ROOT)

        def judge(change: Change) -> Verdict:
            tree = trees.get()
            try:
                verdict = _verdict(tree, change, subjects)
            finally:
                trees.put(tree)
            print(f"{verdict.value:30} {change}", flush=True)
            return verdict

        with ThreadPoolExecutor(options.jobs) as pool:
            verdicts = list(pool.map(judge, changes))
    return _report(changes, verdicts, options.seed, options.least)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--packages", nargs="+", default=PACKAGES)
    parser.add_argument("--count", type=int, default=50, help="changes per package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--least", type=int, default=95, help="per cent that must be noticed")
    parser.add_argument("--only", help="only changes whose line contains this text")
    return parser.parse_args()


def _verdict(tree: Path, change: Change, subjects: Subjects) -> Verdict:
    target = tree / change.module
    original = target.read_text()
    target.write_text(change.applied(original))
    try:
        if not _passes(tree, subjects.fast_tests(change.module)):
            return Verdict.BY_FAST
        slow = subjects.slow_tests(change.module)
        if slow and not _passes(tree, slow):
            return Verdict.BY_SLOW
        return Verdict.SURVIVED
    finally:
        target.write_text(original)


def _passes(tree: Path, tests: list[str]) -> bool:
    """Whether all tests pass; one that never ends has noticed the change."""
    # One process keeps the order of the files: those about the module come first.
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "--no-header"]
    command += ["-p", "no:cacheprovider", *tests]
    process = subprocess.Popen(
        command,
        cwd=tree,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(TIMEOUT_SECONDS) == 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False


def _report(changes: list[Change], verdicts: list[Verdict], seed: int, least: int) -> int:
    """Print the score of each package; 1 when a package's score is too low."""
    counts = Counter(
        (change.module.parts[1], verdict) for change, verdict in zip(changes, verdicts, strict=True)
    )
    is_too_low = False
    print(f"\nseed {seed}")
    for package in dict.fromkeys(change.module.parts[1] for change in changes):
        fast, slow, survived = (counts[package, verdict] for verdict in Verdict)
        total = fast + slow + survived
        share = 100 * (fast + slow) / total
        is_too_low = is_too_low or share < least
        print(
            f"{package:10} {share:5.1f} % of {total} noticed "
            f"({fast} by fast tests, {slow} by tests on Postgres, {survived} by none)"
        )
    return 1 if is_too_low else 0


if __name__ == "__main__":
    sys.exit(main())
