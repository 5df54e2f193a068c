"""Log lines of a process: one line per event, which no value can forge, also when stderr is closed."""

import subprocess
import sys

import pytest

PROGRAM = """
import logging, os, structlog
from app.cli.server.log_output import set_up_logging
set_up_logging("info", as_json={as_json})
log = structlog.get_logger("test")
log.debug("too_detailed")
log.warning("ours", path="a\\n2026-01-01 forged")
logging.getLogger("library").warning("theirs %s", "too")
try:
    raise ValueError("boom\\nforged")
except ValueError:
    log.exception("request_failed")
reading, writing = os.pipe()
os.dup2(writing, 2)
os.close(writing)
os.close(reading)
log.warning("stderr is closed")
print("still running")
"""


@pytest.mark.parametrize("as_json", [False, True])
def test_lines_cannot_be_forged_and_a_closed_stderr_ends_nothing(as_json: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(as_json=as_json)],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert done.stdout == "still running\n"
    lines = done.stderr.splitlines()
    assert "too_detailed" not in done.stderr
    assert sum("ours" in line for line in lines) == 1
    assert sum("theirs too" in line for line in lines) == 1
    assert sum("request_failed" in line for line in lines) == 1
    assert "boom" in done.stderr
    assert not any(line.startswith(("2026-01-01", "forged")) for line in lines)
