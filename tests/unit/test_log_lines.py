"""Log lines of a process: one line per event, which no value can forge, also when stderr is closed."""

import subprocess
import sys

import pytest
import structlog

from app.cli.server.plain_lines import plain_line

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


@pytest.mark.parametrize(
    "event",
    [
        {"event": "http_request"},
        {
            "event": "run_failed",
            "timestamp": "2026-11-20T01:35:50Z",
            "level": "info",
            "z": 1,
            "a": "",
        },
        {
            "event": "a name that is longer than its column",
            "level": "critical",
            "path": "a b",
            "n": None,
        },
        {
            "event": "quoted",
            "level": "warning",
            "a": "x=y",
            "b": "it's",
            "c": 'say "a"',
            "d": "a\tb",
        },
        {"event": "values", "level": "error", "list": ["a", 1], "seconds": 0.25, "é": "ü"},
        {"event": "named", "logger": "uvicorn.error", "logger_name": "app", "level": "debug"},
        {
            "event": "failed",
            "exception": "Traceback:\n  ValueError",
            "level": "error",
            "run_id": "x",
        },
        {"event": "failed", "stack": "Stack:\n  line"},
        {"event": "failed", "stack": "Stack:\n  line", "exception": "Traceback:\n  ValueError"},
        {"level": "info", "a": 1},
    ],
)
def test_a_plain_line_is_that_of_structlog(event: dict[str, object]) -> None:
    expected = structlog.dev.ConsoleRenderer(colors=False)(None, "info", dict(event))
    assert plain_line(None, "info", dict(event)) == expected
