"""What a process prints once it is ready: addresses, models and commands to try."""

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from app.bootstrap.application import Application
from app.cli.server.socket import address
from app.http.auth import Authenticator
from app.http.start_pages.pages import first_steps
from app.llm.catalog import problem_of

_USUAL_ADDRESS = "http://127.0.0.1:8000"
_SHOWN_STEPS = 3


def of_server(
    application: Application, authenticator: Authenticator, listener: socket.socket
) -> str:
    base = address(listener)
    models = _models(application)
    return "\n".join(
        [
            "",
            f"Holdfast serves on {base}",
            f"  data    {application.database_address}",
            f"  models  {models[0]}",
            *(f"          {more}" for more in models[1:]),
            f"  docs    {base}/docs",
            *([f"  console {base}/console/"] if application.settings.console else []),
            "",
            "In another terminal:",
            *([] if base == _USUAL_ADDRESS else [f"  export HOLDFAST_URL={base}"]),
            *([] if authenticator.is_keyless else ["  export HOLDFAST_API_KEY=…   # your key"]),
            *_first_commands(application),
            "",
        ]
    )


def of_worker(application: Application, listener: socket.socket | None) -> str:
    slots = application.settings.concurrency
    line = f"Worker of {application.database_address}: {slots} runs at once"
    if listener is None:
        return line
    base = address(listener)
    return f"{line}\n  health   {base}/health\n  metrics  {base}/metrics"


def _models(application: Application) -> list[str]:
    """A line with the working models, and one for each other model."""
    problems = {spec.name: problem_of(spec, os.environ) for spec in application.models.specs}
    working = [
        f"{spec.name} ({spec.model or 'plays a script'})"
        for spec in application.models.specs
        if problems[spec.name] is None
    ]
    broken = [f"{name} doesn't work: {why}" for name, why in problems.items() if why is not None]
    return [", ".join(working) or "none", *broken]


def _first_commands(application: Application) -> Iterator[str]:
    """Commands to try, each with what it does, in two columns."""
    steps = first_steps(next(iter(application.catalog.agents)), _program())[:_SHOWN_STEPS]
    width = max(len(step.command) for step in steps)
    return (f"  {step.command:{width}}   # {step.effect}" for step in steps)


def _program() -> str:
    """How a person calls this program in the folder where the server was started."""
    here = Path(sys.executable).with_name("holdfast")
    found = shutil.which("holdfast")
    if (found is not None and Path(found).samefile(here)) or not here.exists():
        return "holdfast"
    inside = here.is_relative_to(Path.cwd())
    return str(here.relative_to(Path.cwd()) if inside else here)
