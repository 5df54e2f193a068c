"""Runs one `holdfast` command to its end."""

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

HOLDFAST = Path(sys.executable).with_name("holdfast")
OURS = ("HOLDFAST_", "DATABASE_URL", "NATS_URL", "OPENAI_", "ANTHROPIC_", "PYTHONDONTWRITEBYTECODE")
"""Variables that are not passed on: those that change settings, and those that disable bytecode caches."""


@dataclass(frozen=True, slots=True)
class Finished:
    code: int
    out: str
    err: str


async def holdfast(*arguments: str, url: str = "", stdin: str = "", **environment: str) -> Finished:
    """Run the command with these variables only; returns its output and exit code."""
    process = await asyncio.create_subprocess_exec(
        HOLDFAST,
        *arguments,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(OURS)},
            **({"HOLDFAST_URL": url} if url else {}),
            **environment,
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(40):
            out, err = await process.communicate(stdin.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(), err.decode())
