"""Starts a command of Holdfast as a fork; the handle is like that of asyncio's subprocesses."""

import asyncio
import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


class ForkedProcess:
    """A child of the forking process. It is not ours, so its exit code comes through a pipe."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader, exit_code: int) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._exit_code = exit_code
        self._has_ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(exit_code, self._ended)

    def _ended(self) -> None:
        self._loop.remove_reader(self._exit_code)
        code = os.read(self._exit_code, 16)
        os.close(self._exit_code)
        self.returncode = int(code) if code else -signal.SIGKILL
        self._has_ended.set()

    async def wait(self) -> int:
        await self._has_ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def start_forked(
    command: Sequence[str | Path], environment: Mapping[str, str]
) -> ForkedProcess:
    """Start `holdfast …` with these variables only. Its errors go to its output."""
    output, output_end = os.pipe()
    exit_code, exit_code_end = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    theirs = [nothing, output_end, output_end, exit_code_end]
    request = {"command": [str(part) for part in command], "environment": dict(environment)}
    control = _forking_process()
    socket.send_fds(control, [json.dumps(request).encode()], theirs)
    pid = int(control.recv(32))
    for file in {*theirs}:
        os.close(file)
    stdout = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(output, "rb", 0)
    )
    return ForkedProcess(pid, stdout, exit_code)


@functools.cache
def _forking_process() -> socket.socket:
    """Started with the first request; ends when this process ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program = Path(__file__).with_name("parent.py")
    process = subprocess.Popen(
        [sys.executable, "-P", program, str(theirs.fileno())], pass_fds=[theirs.fileno()]
    )
    theirs.close()

    def stop() -> None:
        ours.close()
        process.wait()

    atexit.register(stop)
    return ours
