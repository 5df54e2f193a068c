"""What a process says once it is ready: where it is, what it has, and what to try."""

import os
import shlex
import socket

from app.bootstrap.application import Application
from app.cli.server.socket import address
from app.domain.ids import AgentId
from app.domain.json_values import compact
from app.http.auth import Authenticator
from app.llm.catalog import problem_of

_DEMO = AgentId("demo")
_JSON = "-H 'Content-Type: application/json'"


def of_server(house: Application, authenticator: Authenticator, listener: socket.socket) -> str:
    base = address(listener)
    key = "" if authenticator.is_keyless else '-H "Authorization: Bearer $HOLDFAST_API_KEY" '
    models = _models(house)
    return "\n".join(
        [
            "",
            f"Holdfast serves on {base}",
            f"  data    {house.place}",
            f"  models  {models[0]}",
            *(f"          {more}" for more in models[1:]),
            f"  docs    {base}/docs",
            "",
            "Start a run and watch it:",
            f"  {_start(house, base, key)}",
            "Approve the newest call that waits for somebody:",
            f"  {_decide(base, key)}",
            "",
        ]
    )


def of_worker(house: Application) -> str:
    return f"Worker of {house.place}: {house.settings.concurrency} runs at once"


def _models(house: Application) -> list[str]:
    """A line for those that can work, and one for each that can't."""
    problems = {spec.name: problem_of(spec, os.environ) for spec in house.models.specs}
    working = [
        f"{spec.name} ({spec.model or 'plays a script'})"
        for spec in house.models.specs
        if problems[spec.name] is None
    ]
    broken = [f"{name} can't work: {why}" for name, why in problems.items() if why is not None]
    return [", ".join(working) or "none", *broken]


def _start(house: Application, base: str, key: str) -> str:
    agent = next(iter(house.catalog.agents))
    prompt = "delete /tmp/old-report.txt" if agent == _DEMO else "Hello! What can you do?"
    body = {"agent_id": agent, "messages": [{"role": "user", "content": prompt}]}
    return (
        f"curl -N {base}/v1/runs -H 'Accept: text/event-stream' {_JSON} {key}"
        f"-d {shlex.quote(compact(body))}"
    )


def _decide(base: str, key: str) -> str:
    """Works as it stands, whichever run waits: the ticket and its run are looked up first."""
    return (
        f"curl -s {key}'{base}/v1/tickets?status=open&limit=1' | cut -d'\"' -f6,14 | "
        f"(IFS='\"' read T R; curl -s {base}/v1/runs/$R/decisions {key}{_JSON} "
        """-d '{"decisions":[{"ticket_id":"'$T'","action":"approve"}]}')"""
    )
