"""How long one step of an event loop blocks it, in processor time of the loop's thread.

Processor time, because other processes of the machine must not count; and compared with a reference loop of
the same process, because machines differ.
"""

import asyncio
import gc
import socket
import time
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import uvicorn

from app.bootstrap.application import open_application
from app.http.auth import load_authenticator
from app.http.limits.connections import bounded_protocol
from app.main import create_app
from app.settings import Settings

REFERENCE_ROUNDS = 5_000_000
"""About 100 ms on a common machine."""
_TIMEOUT = 120.0


@dataclass(slots=True)
class LoopTime:
    longest: float = 0.0
    """Seconds of the longest step since `reset`."""
    step: str = ""
    allowed: float = 0.0
    """Seconds of the reference loop."""

    def reset(self) -> None:
        self.longest, self.step = 0.0, ""


@contextmanager
def loop_time() -> Iterator[LoopTime]:
    """Measure each step of this thread's loop, which must be one of asyncio's own."""
    found = LoopTime()
    handle = asyncio.events.Handle
    run = handle._run

    def measured(self: asyncio.Handle) -> None:
        begin = time.thread_time()
        run(self)
        took = time.thread_time() - begin
        if took > found.longest:
            found.longest, found.step = took, repr(self)[:500]

    handle._run = measured  # type: ignore[method-assign]
    try:
        yield found
    finally:
        handle._run = run  # type: ignore[method-assign]


def reference() -> float:
    """Processor time of the reference loop."""
    begin = time.thread_time()
    total = 0
    for number in range(REFERENCE_ROUNDS):
        total += number & 1
    assert total == REFERENCE_ROUNDS // 2
    return time.thread_time() - begin


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the test runner."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@asynccontextmanager
async def served_here(settings: Settings) -> AsyncIterator[int]:
    """The whole service on this loop, as `holdfast serve` has it; yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    async with open_application(settings) as replica:
        gc.collect()
        gc.freeze()
        config = uvicorn.Config(
            create_app(replica, load_authenticator(None, None)),
            http=bounded_protocol(settings.client_timeout, settings.max_body_bytes),
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
        )
        server = _Server(config)
        serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving
            gc.unfreeze()


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes


async def ask(
    port: int,
    method: str,
    target: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """One request with exactly these bytes, sent and read by another thread."""
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close"]
    if body is not None:
        headers = {"Content-Type": "application/json", **(headers or {})}
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return await asyncio.to_thread(partial(_exchange, port, head + (body or b"")))


def _exchange(port: int, request: bytes) -> Reply:
    with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT) as connection:
        pieces: list[bytes] = []
        # A response before the end of the request may be followed by a reset.
        with suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(request)
        with suppress(ConnectionResetError):
            while piece := connection.recv(1 << 20):
                pieces.append(piece)
    head, _, content = b"".join(pieces).partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        content = b"".join(_chunks(content))
    return Reply(int(head.split(b" ", 2)[1]), content)


def _chunks(content: bytes) -> Iterator[bytes]:
    place = 0
    while True:
        end = content.index(b"\r\n", place)
        size = int(content[place:end], 16)
        if size == 0:
            return
        yield content[end + 2 : end + 2 + size]
        place = end + 2 + size + 2
