"""The hooks for commits work with the programs of the environment, and the tree passes them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.documents import ROOT


def test_every_hook_passes_on_the_whole_tree(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files", "--verbose"],
        cwd=ROOT,
        env={**os.environ, "PRE_COMMIT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("- hook id:") == 3
    assert "Skipped" not in done.stdout
