"""The built console, for tests that serve or measure it."""

import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from tests.support.documents import ROOT

WEB = ROOT / "app" / "console" / "web"
STATIC = ROOT / "app" / "console" / "static"
_LOCK = ROOT / ".venv" / ".console-build.lock"
_TIMEOUT_SECONDS = 300.0


def built_console() -> Path:
    """Build the console unless the last build has the same sources. Processes of one test run wait for each other."""
    with FileLock(_LOCK, timeout=_TIMEOUT_SECONDS):
        command = [sys.executable, str(ROOT / "scripts" / "build_console.py")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return STATIC
