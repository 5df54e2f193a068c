"""What `make run` prints on the terminal."""

import subprocess
from pathlib import Path

from tests.support.documents import ROOT


def test_make_run_says_what_it_installs_before_it_serves(tmp_path: Path) -> None:
    command = ["make", "--dry-run", "run", f"VENV={tmp_path / 'none'}"]
    planned = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    steps = [
        "Installing Holdfast, a Postgres and what they need",
        "uv sync",
        'echo "Installed."',
        "holdfast serve",
    ]
    places = [planned.index(step) for step in steps]
    assert places == sorted(places)
