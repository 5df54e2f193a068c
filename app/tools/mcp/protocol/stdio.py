"""Starts a server's program and exchanges lines with it, within bounds.

A program may write lines without end, or many at once. So a line has a maximum length, lines are read at a
maximum rate, and standard error goes to the log at a rate of its own. Closing takes a few seconds at most.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
import mcp_types
import structlog
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from app.domain.redaction import Redact
from app.tools.mcp.client import ServerAway
from app.tools.mcp.server_spec import McpServerSpec
from app.tools.result_limits import shortened

MAX_LINE_BYTES = 4 << 20
MAX_LINES_PER_SECOND = 500
MAX_UNREADABLE_LINES = 100
"""A server that writes more lines that aren't messages is given up."""
MAX_LOG_LINE = 2_000
MAX_LOG_LINES_PER_SECOND = 10
STDIN_CLOSED_TIMEOUT_SECONDS = 1.0
TERMINATE_TIMEOUT_SECONDS = 1.0
KILL_TIMEOUT_SECONDS = 1.0
_CHUNK_BYTES = 1 << 16
_EXIT_INTERVAL_SECONDS = 0.01

log = structlog.get_logger(__name__)
_Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


@asynccontextmanager
async def stdio_streams(
    spec: McpServerSpec, environ: Mapping[str, str], redact: Redact, closed: anyio.Event
) -> AsyncIterator[_Streams]:
    """The streams of a new process of the server. Sets `closed` when its output ends."""
    process = await _start(spec, environ)
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    lines = _Lines(process.stdout, spec.name)
    async with anyio.create_task_group() as group:
        group.start_soon(_read_messages, lines, incoming, closed)
        group.start_soon(_write_messages, process, outgoing)
        group.start_soon(_log_errors, process.stderr, spec.name, redact)
        try:
            yield read, write
        finally:
            with anyio.CancelScope(shield=True):
                read.close()
                write.close()
                await _stop(process)
            group.cancel_scope.cancel()


async def _start(spec: McpServerSpec, environ: Mapping[str, str]) -> Process:
    env = {**get_default_environment(), **spec.env}
    env |= {name: environ[name] for name in spec.env_from if name in environ}
    program = shutil.which(spec.command or "", path=env.get("PATH"))
    if program is None:
        raise ServerAway(f"there is no program {spec.command!r}: install it, or correct `command`")
    # On Linux the program gets a signal when this process dies, also by `kill -9`.
    guard = shutil.which("setpriv")
    prefix = [] if guard is None else [guard, "--pdeathsig", "TERM", "--"]
    try:
        return await anyio.open_process(
            [*prefix, program, *spec.args],
            env=env,
            cwd=spec.cwd,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise ServerAway(f"{spec.command!r} can't be started: {error}") from error


@dataclass(slots=True)
class _Rate:
    """At most so many per second; `left` counts down within a second."""

    per_second: int
    began: float = -1.0
    used: int = 0

    def seconds_to_wait(self) -> float:
        now = anyio.current_time()
        if now - self.began >= 1:
            self.began, self.used = now, 0
        self.used += 1
        return 0.0 if self.used <= self.per_second else self.began + 1 - now


@dataclass(slots=True)
class _Lines:
    """The lines of a program's output. Ends at a line that is too long."""

    stream: ByteReceiveStream
    server: str
    max_bytes: int = MAX_LINE_BYTES
    _buffer: bytearray = field(default_factory=bytearray)

    async def each(self) -> AsyncIterator[bytes]:
        searched = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                searched = 0
                yield line
                continue
            searched = len(self._buffer)
            if searched > self.max_bytes:
                log.warning("mcp_server_line_too_long", server=self.server, bytes=searched)
                return
            try:
                self._buffer += await self.stream.receive(_CHUNK_BYTES)
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                return
            except OSError:
                return


async def _read_messages(
    lines: _Lines,
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    closed: anyio.Event,
) -> None:
    rate, unreadable = _Rate(MAX_LINES_PER_SECOND), 0
    async with incoming:
        try:
            async for line in lines.each():
                if (wait := rate.seconds_to_wait()) > 0:
                    await anyio.sleep(wait)
                message = _message_of(line)
                if message is None:
                    unreadable += 1
                    if unreadable > MAX_UNREADABLE_LINES:
                        log.warning("mcp_server_unreadable", server=lines.server, lines=unreadable)
                        return
                    continue
                await incoming.send(message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return
        finally:
            closed.set()


def _message_of(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError):
        return None


async def _write_messages(
    process: Process, outgoing: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    assert process.stdin is not None
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        async with outgoing:
            async for message in outgoing:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(text.encode() + b"\n")


async def _log_errors(stream: ByteReceiveStream, server: str, redact: Redact) -> None:
    """Log the program's error lines. Lines over the rate are read and dropped."""
    rate = _Rate(MAX_LOG_LINES_PER_SECOND)
    rest = b""
    while True:
        try:
            chunk = await stream.receive(_CHUNK_BYTES)
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            return
        *complete, rest = (rest + chunk).split(b"\n")
        rest = rest[:MAX_LOG_LINE]
        for line in complete:
            if line.strip() and rate.seconds_to_wait() <= 0:
                text = redact(line[:MAX_LOG_LINE].decode(errors="replace"))
                log.info("mcp_server_stderr", server=server, line=shortened(text, MAX_LOG_LINE))


async def _stop(process: Process) -> None:
    """Close the program's input, then terminate its process group, then kill it."""
    assert process.stdin is not None
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        await process.stdin.aclose()
    if not await _has_ended(process, STDIN_CLOSED_TIMEOUT_SECONDS):
        _signal_group(process, signal.SIGTERM)
        if not await _has_ended(process, TERMINATE_TIMEOUT_SECONDS):
            log.info("mcp_server_killed", pid=process.pid)
            _signal_group(process, signal.SIGKILL)
            await _has_ended(process, KILL_TIMEOUT_SECONDS)
    # Children of the program, such as those of npx, are in its group.
    _signal_group(process, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                await stream.aclose()
    _close_transport(process)


def _close_transport(process: Process) -> None:
    """Close the pipes of a program that is gone; children of it may hold them open. The library closes none."""
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()


async def _has_ended(process: Process, seconds: float) -> bool:
    # `wait` also waits for the end of the pipes, which children may hold open.
    for _ in range(int(seconds / _EXIT_INTERVAL_SECONDS)):
        if process.returncode is not None:
            break
        await anyio.sleep(_EXIT_INTERVAL_SECONDS)
    return process.returncode is not None


def _signal_group(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
