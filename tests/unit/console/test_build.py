"""The build of the console: when it is repeated, and what happens without Node and a network."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.console import STATIC
from tests.support.documents import ROOT

SCRIPT = "scripts/build_console.py"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The sources without what is installed, and without a build."""
    left_out = shutil.ignore_patterns("node_modules", ".node", ".tests", "openapi.d.ts")
    web = Path("app", "console", "web")
    shutil.copytree(ROOT / web, tmp_path / web, ignore=left_out)
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / SCRIPT, tmp_path / SCRIPT)
    return tmp_path


def build(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script where there is neither Node nor a network."""
    nowhere = {
        "PIP_INDEX_URL": "http://127.0.0.1:9",
        "PIP_RETRIES": "0",
        "PIP_CONFIG_FILE": os.devnull,
    }
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        cwd=folder,
        env={"PATH": "/nowhere", **nowhere},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_node_and_network_a_server_can_start_and_is_told_how_to_build(copy: Path) -> None:
    done = build(copy, "--optional")
    assert done.returncode == 0, done.stderr
    assert "Building the web console" in done.stdout
    assert "The server starts without it" in done.stdout
    assert "can't be built" in done.stderr
    assert build(copy).returncode == 1
    assert not (copy / "app" / "console" / "static").exists()


def test_a_build_of_the_same_sources_is_kept(copy: Path, static: Path) -> None:
    shutil.copytree(static, copy / STATIC.relative_to(ROOT))
    done = build(copy)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["core/ids.ts", "css/tokens.css", "package-lock.json"])
def test_a_changed_source_is_built_again(copy: Path, static: Path, name: str) -> None:
    shutil.copytree(static, copy / STATIC.relative_to(ROOT))
    with (copy / "app" / "console" / "web" / name).open("a") as file:
        file.write("\n")
    assert "Building the web console" in build(copy).stdout


def test_the_manifest_names_every_file_that_is_served(static: Path) -> None:
    names = set(json.loads((static / "manifest.json").read_text())["names"])
    assert {f"{name}.gz" for name in names} | names | {"manifest.json", "licenses.txt"} == {
        path.name for path in static.iterdir()
    }
