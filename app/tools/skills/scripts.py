"""Runs a script of a skill: a process of its own, with a time limit, little environment, and bounded output."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

MAX_OUTPUT_BYTES = 100_000
"""Of the output, and of the error output."""
_SECONDS_FOR_PIPES = 10.0
"""How long the pipes may stay open after the script was ended: one of its processes may have left its group."""
_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ")
"""What a script gets of this process's environment. It has no secrets."""
_PROGRAMS = {".sh": "sh", ".bash": "bash", ".js": "node", ".mjs": "node"}


class CantRun(Exception):
    """The script can't be started; the message says what to do."""


class ScriptEnd(Struct, frozen=True):
    """`exit_code` is negative for a signal, and None after the time limit."""

    exit_code: int | None
    output: str
    errors: str


class _Output(asyncio.SubprocessProtocol):
    """Keeps the beginning of the output and of the error output, and drops the rest."""

    def __init__(self) -> None:
        self.kept = {1: bytearray(), 2: bytearray()}
        self.exited, self.ended = asyncio.Event(), asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        room = MAX_OUTPUT_BYTES + 1 - len(self.kept[fd])
        self.kept[fd] += data[: max(0, room)]

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The process has exited, and its pipes are closed."""
        self.ended.set()

    def text(self, fd: int) -> str:
        kept = self.kept[fd]
        text = kept[:MAX_OUTPUT_BYTES].decode(errors="replace")
        return text if len(kept) <= MAX_OUTPUT_BYTES else f"{text}\n[The rest is left out]"


def command_of(script: Path) -> list[str]:
    """The program that runs the script, by the ending of its name; else the script itself."""
    suffix = script.suffix.lower()
    if suffix == ".py":
        return [sys.executable, "-E", "-s", str(script)]
    if (named := _PROGRAMS.get(suffix)) is not None:
        program = shutil.which(named)
        if program is None:
            raise CantRun(f"there is no program {named!r}, which {script.name} needs; install it")
        return [program, str(script)]
    if not os.access(script, os.X_OK):
        raise CantRun(f"{script.name} isn't executable; give it that right, and a line with #!")
    return [str(script)]


async def run_script(
    script: Path, arguments: Sequence[str], *, folder: Path, timeout: float
) -> ScriptEnd:
    """Run the script in an empty folder. When it ends, or this task is cancelled, its processes are killed."""
    command = [*_guard(), *command_of(script), *arguments]
    with tempfile.TemporaryDirectory(prefix="skill-", ignore_cleanup_errors=True) as work:
        environ = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        environ |= {"HOME": work, "TMPDIR": work, "SKILL_DIR": str(folder)}
        try:
            transport, output = await _started(command, work, environ)
        except (OSError, ValueError) as error:
            raise CantRun(f"{script.name} can't be started: {error}") from error
        return await _until_end(transport, output, timeout)


async def _started(
    command: Sequence[str], folder: str, environ: Mapping[str, str]
) -> tuple[asyncio.SubprocessTransport, _Output]:
    """Start the process. Cancelling the caller doesn't interrupt this, because then it couldn't be ended."""
    loop = asyncio.get_running_loop()
    starting = loop.create_task(
        loop.subprocess_exec(
            _Output,
            *command,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Also if the caller is cancelled a second time.
        starting.add_done_callback(_kill_started)
        await asyncio.wait([starting])
        if not starting.cancelled() and starting.exception() is None:
            await _wait_for_end(*starting.result())
        raise


def _kill_started(starting: asyncio.Task[tuple[asyncio.SubprocessTransport, _Output]]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        _kill(starting.result()[0].get_pid())


async def _wait_for_end(transport: asyncio.SubprocessTransport, output: _Output) -> None:
    """Wait until the killed process has ended and its pipes are closed."""
    try:
        async with asyncio.timeout(_SECONDS_FOR_PIPES):
            await output.ended.wait()
    except TimeoutError:
        pass
    finally:
        transport.close()


def _kill(group: int) -> None:
    """The script is the first process of its session, so this ends the processes that it started, too."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


async def _until_end(
    transport: asyncio.SubprocessTransport, output: _Output, timeout: float
) -> ScriptEnd:
    exit_code: int | None = None
    group = transport.get_pid()
    try:
        async with asyncio.timeout(timeout):
            await output.exited.wait()
        exit_code = transport.get_returncode()
    except TimeoutError:
        pass
    finally:
        _kill(group)
        await _wait_for_end(transport, output)
    return ScriptEnd(exit_code, output.text(1), output.text(2))


def _guard() -> list[str]:
    """On Linux the script gets a signal when this process dies, also by `kill -9`."""
    program = shutil.which("setpriv")
    return [] if program is None else [program, "--pdeathsig", "KILL", "--"]
