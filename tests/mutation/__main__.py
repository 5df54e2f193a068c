"""Samples one-token changes by a seed, runs the tests of each subject, and prints the score.

A change is noticed when a test fails, and survives when all pass. Only fast tests that reach the changed
line run, in forks of a process that has collected them. Slower tests run only for changes that the fast ones
did not notice.
"""

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.changes import Change, offered_by, sample
from tests.mutation.fast_tests import FastTests
from tests.mutation.judging import Judge, Verdict
from tests.mutation.reached import trace
from tests.mutation.subjects import Subjects

ROOT = Path(__file__).parents[2]
PACKAGES = ["domain", "runtime"]
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "node_modules", "__pycache__", ".*_cache", ".hypothesis"
)


def main() -> int:
    options = _options()
    changes = _chosen(options)
    judge = Judge(Subjects(ROOT), trace(ROOT, options.jobs), not options.fast)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-mutants-"))
        jobs: SimpleQueue[tuple[Path, FastTests]] = SimpleQueue()
        for number in range(options.jobs):
            tree = shutil.copytree(ROOT, Path(folder) / str(number), ignore=NOT_COPIED)
            jobs.put((tree, stack.enter_context(FastTests(tree))))

        def judged(change: Change) -> Verdict:
            tree, fast_tests = jobs.get()
            try:
                verdict = judge.verdict(tree, fast_tests, change)
            finally:
                jobs.put((tree, fast_tests))
            print(f"{verdict.value:30} {change}", flush=True)
            return verdict

        with ThreadPoolExecutor(options.jobs) as pool:
            verdicts = list(pool.map(judged, changes))
    return _report(changes, verdicts, options.seed, options.least)


def _chosen(options: argparse.Namespace) -> list[Change]:
    """A sample; with `--only`, every change whose line contains one of the texts."""
    if options.only is None:
        return sample(ROOT, options.packages, options.count, options.seed)
    offered = [change for package in options.packages for change in offered_by(ROOT, package)]
    return [change for change in offered if any(text in str(change) for text in options.only)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--packages", nargs="+", default=PACKAGES)
    parser.add_argument("--count", type=int, default=50, help="changes per package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--least", type=int, default=95, help="per cent that must be noticed")
    parser.add_argument("--only", nargs="+", help="all changes that contain one of these texts")
    parser.add_argument("--fast", action="store_true", help="leave out the slower tests")
    return parser.parse_args()


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
            f"({fast} by fast tests, {slow} by slower tests, {survived} by none)"
        )
    return 1 if is_too_low else 0


if __name__ == "__main__":
    sys.exit(main())
