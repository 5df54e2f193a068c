"""Executes documents: the files of a page, its commands, and their expected output."""

import asyncio
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from app.embedded_postgres import programs
from tests.support.commands import HOLDFAST

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^<!-- (file: (?P<file>\S+)|run) -->\n```\w+\n(?P<text>.*?)^```\n", re.M | re.S
)
_SHOWS = re.compile(r"<!-- shows: (.*?) -->\n")
_TIMEOUT_SECONDS = 50


@dataclass(frozen=True, slots=True)
class Commands:
    """A block of commands, and texts that its output must contain."""

    script: str
    shows: list[str]


@dataclass(frozen=True, slots=True)
class Document:
    files: dict[str, str] = field(default_factory=dict)
    commands: list[Commands] = field(default_factory=list)


def page(name: str) -> str:
    return (ROOT / name).read_text()


def pages() -> list[Path]:
    """Every document, also those at the top."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def block_after(text: str, mark: str) -> str:
    """The fenced block behind a comment of that text."""
    found = re.search(rf"^<!-- {re.escape(mark)} -->\n```\w+\n(.*?)^```", text, re.M | re.S)
    assert found is not None, mark
    return found[1]


def part(text: str, begins: str, ends: str) -> str:
    """The text between two comments."""
    found = text.partition(f"<!-- {begins} -->")[2].partition(f"<!-- {ends} -->")
    assert found[1], begins
    return found[0]


def document(name: str) -> Document:
    text, read = page(name), Document()
    for block in _BLOCK.finditer(text):
        if block["file"]:
            read.files[block["file"]] = block["text"]
        else:
            read.commands.append(Commands(block["text"], _following(text, block.end())))
    return read


def _following(text: str, start: int) -> list[str]:
    shown = []
    while found := _SHOWS.match(text, start):
        shown.append(found[1])
        start = found.end()
    return shown


async def in_shell(script: str, folder: Path, **environment: str) -> None:
    """Execute commands with the command line and Postgres' programs at hand; all must succeed."""
    shell = await asyncio.create_subprocess_exec(
        *("bash", "-c", f"set -euo pipefail\n{script}"),
        cwd=folder,
        env={**os.environ, **environment, "PATH": _path()},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await _finish(shell)
    assert shell.returncode == 0, errors.decode()


async def execute(commands: list[Commands], base: str, folder: Path, **variables: str) -> list[str]:
    """The output of each block; all run in one shell against the server at `base`."""
    parts = ["set -euo pipefail"]
    for number, block in enumerate(commands):
        script = block.script.replace("http://127.0.0.1:8000", base)
        script = script.replace(".venv/bin/holdfast", str(HOLDFAST))
        parts.append(f"{{\n{script}}} > out-{number} 2>&1")
    shell = await asyncio.create_subprocess_exec(
        *("bash", "-c", "\n".join(parts)),
        cwd=folder,
        env={**os.environ, "PATH": _path(), "HOLDFAST_URL": base, **variables},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await _finish(shell)
    printed = _printed(folder)
    assert shell.returncode == 0, f"{errors.decode()}\n{printed[-1:]}"
    return printed


def _path() -> str:
    """The programs that commands find: the command line, Postgres' programs, and those of this machine."""
    return f"{HOLDFAST.parent}{os.pathsep}{programs._bin()}{os.pathsep}{os.environ['PATH']}"


async def _finish(shell: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            return await shell.communicate()
    finally:
        if shell.returncode is None:
            shell.kill()
            await shell.wait()


def _printed(folder: Path) -> list[str]:
    return [file.read_text() for file in sorted(folder.glob("out-*"), key=_number)]


def _number(file: Path) -> int:
    return int(file.name.removeprefix("out-"))
