"""`holdfast` commands whose output a test reads, and whose input it writes."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.commands import HOLDFAST, OURS
from tests.support.servers import Running


class Command(Running):
    """A running command; `log` is its output, including an unfinished line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__(process)
        self._stdin = process.stdin

    async def listen(self) -> None:
        assert self.process.stdout is not None
        while chunk := await self.process.stdout.read(4096):
            self.log += chunk.decode(errors="replace")
            self._printed.set()
        await self.process.wait()
        self._printed.set()

    def type(self, line: str) -> None:
        assert self._stdin is not None
        self._stdin.write(f"{line}\n".encode())

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)


@asynccontextmanager
async def started(*arguments: str, **environment: str) -> AsyncIterator[Command]:
    """A `holdfast` command with an open stdin and no input yet."""
    async with running(HOLDFAST, *arguments, **environment) as command:
        yield command


@asynccontextmanager
async def running(*words: str | Path, **environment: str) -> AsyncIterator[Command]:
    """A program with an open stdin and no input yet."""
    process = await asyncio.create_subprocess_exec(
        *words,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(OURS)},
            **environment,
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    command = Command(process)
    listening = asyncio.get_running_loop().create_task(command.listen())
    try:
        yield command
    finally:
        if process.returncode is None:
            command.kill()
        assert process.stdin is not None
        process.stdin.close()
        await listening
