"""`make bench` measures this tree: each section that takes seconds prints its lines."""

import subprocess
import sys

import pytest

from tests.support.documents import ROOT

pytestmark = pytest.mark.timeout(180)


@pytest.mark.timeout(600)
def test_the_console_stays_within_its_bytes_requests_and_memory() -> None:
    command = (sys.executable, "-m", "bench.console", "--quick")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("inbox: bytes", "system: requests", "conversation: heap", "50 open consoles"):
        assert line in done.stdout


def test_the_quick_bench_prints_a_figure_for_each_section_of_speed() -> None:
    command = (sys.executable, "-m", "bench", "--quick", "--only", "short,long,tool,hitl")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line in ("first token, p50", "tokens/s", "8 at a time: runs/s", "decision to first token"):
        assert line in done.stdout
