"""The processes of a measurement: model, floor and server, on free ports."""

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Served:
    """A server at `base`, with its process if the measurement started it."""

    base: str
    pid: int | None


def age(process: psutil.Process) -> float:
    """Seconds since a process was started."""
    return time.time() - process.create_time()


class NotStarted(Exception):
    """A process of the measurement has ended, or did not print its address."""


@asynccontextmanager
async def model(folder: Path, port: int) -> AsyncIterator[Served]:
    """The fake provider of the tests. If the port is taken, the server that listens there."""
    if port and await _is_taken(port):
        yield Served(f"http://127.0.0.1:{port}/v1", None)
        return
    command = [sys.executable, "-m", "tests.support.fake_openai", "--port", str(port)]
    async with _child(command, {}, folder / "model.log") as process:
        found = await _address_of(process, r"^(\d+)$", folder / "model.log")
        yield Served(f"http://127.0.0.1:{found}/v1", process.pid)


@asynccontextmanager
async def floor(folder: Path, model_url: str) -> AsyncIterator[Served]:
    command = [sys.executable, "-m", "bench.floor", model_url]
    async with _child(command, {}, folder / "floor.log") as process:
        found = await _address_of(process, r"^(\d+)$", folder / "floor.log")
        yield Served(f"http://127.0.0.1:{found}", process.pid)


@asynccontextmanager
async def holdfast(folder: Path, settings: Mapping[str, str]) -> AsyncIterator[Served]:
    """`holdfast serve` with defaults, these settings and those of the environment."""
    command = [str(Path(sys.executable).with_name("holdfast")), "serve"]
    async with _child(
        command, {"HOLDFAST_PORT": "0", **settings}, folder / "server.log"
    ) as process:
        base = await _address_of(process, r"serves on (http://\S+)", folder / "server.log")
        yield Served(base, process.pid)


@asynccontextmanager
async def _child(
    command: list[str], settings: Mapping[str, str], log: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, **settings},
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _address_of(process: asyncio.subprocess.Process, pattern: str, log: Path) -> str:
    """Wait for the line in which a process prints its address."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            while line := await process.stdout.readline():
                if found := re.search(pattern, line.decode().strip()):
                    return found[1]
    except TimeoutError:
        pass
    raise NotStarted(f"{log.stem} didn't start:\n{_end_of(log)}")


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


async def _is_taken(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
