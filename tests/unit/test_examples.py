"""Routes, event types and agents file keys in the examples exist."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

from app.agents.catalog import load_catalog
from app.domain.events.agent_events import AgentEvent

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = (EXAMPLES / "web_page" / "index.html").read_text()


def test_the_examples_use_documented_routes_only() -> None:
    document = json.loads((ROOT / "tests" / "snapshots" / "openapi.json").read_text())
    known = {re.sub(r"\{\w+\}", "{}", path) for path in document["paths"]}
    for file in EXAMPLES.rglob("*"):
        if file.suffix not in (".py", ".html"):
            continue
        source = re.sub(r"\$?\{(?:[^{}]|\{[^{}]*\})*\}", "{}", file.read_text())
        for route in re.findall(r"(/v1/[\w/{}-]+)", source):
            assert route.rstrip("/") in known, f"{file}: {route}"


def test_the_page_handles_event_types_that_there_are() -> None:
    known = {kind.event_type for kind in get_args(AgentEvent)}
    handled = re.findall(r"^    (\w+): \(", PAGE.partition("const handlers = {")[2], re.M)
    assert {"text_delta", "stream_reset", "ticket_opened", "run_finish"} <= set(handled) <= known


def test_the_agents_of_the_hand_off_load() -> None:
    catalog = load_catalog(EXAMPLES / "hand_off" / "agents.toml")
    assert [str(name) for name in catalog.agents] == ["support", "billing"]


def test_the_test_of_the_hand_off_passes(tmp_path: Path) -> None:
    """In a process of its own, as a user runs it: pytest puts the folder into the search path."""
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [*command, EXAMPLES / "hand_off"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert found.returncode == 0, found.stdout
    assert "2 passed" in found.stdout


def test_every_example_is_listed() -> None:
    listed = re.findall(r"^\| `([\w./]+?)/?` \|", (EXAMPLES / "README.md").read_text(), re.M)
    there = [each.name for each in EXAMPLES.iterdir() if not each.name.startswith(("_", "README"))]
    assert sorted(listed) == sorted(there)
