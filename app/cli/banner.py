"""What a process says once it is ready: where it is, what it has, and what to try."""

import os
import shlex
import socket

from app.cli.listening import address
from app.domain.json_values import compact
from app.llm.catalog import problem_of
from app.transport.auth import Doorkeeper
from app.wiring import House


def of_server(house: House, door: Doorkeeper, listener: socket.socket) -> str:
    base = address(listener)
    return "\n".join(
        [
            "",
            f"Holdfast serves on {base}",
            f"  data    {house.place}",
            f"  models  {_models(house)}",
            f"  docs    {base}/docs",
            f"  try     {_curl(house, door, base)}",
            "",
        ]
    )


def of_worker(house: House) -> str:
    return f"Worker of {house.place}: {house.settings.concurrency} runs at once"


def _models(house: House) -> str:
    """Each model, and what keeps it from working if something does."""
    found = []
    for spec in house.models.specs:
        problem = problem_of(spec, os.environ)
        found.append(spec.name if problem is None else f"{spec.name} ({problem})")
    return ", ".join(found) or "none"


def _curl(house: House, door: Doorkeeper, base: str) -> str:
    """A line to paste, which starts a run and streams it."""
    agent = next(iter(house.catalog.agents))
    body = {
        "agent_id": agent,
        "messages": [{"role": "user", "content": "delete /tmp/old-report.txt"}],
    }
    key = "" if door.is_keyless else '-H "Authorization: Bearer $HOLDFAST_API_KEY" '
    return (
        f"curl -N {base}/v1/runs -H 'Accept: text/event-stream' "
        f"-H 'Content-Type: application/json' {key}-d {shlex.quote(compact(body))}"
    )
