"""A fake model provider in a process of its own: `python -m tests.support.fake_openai --port 0`.

Prints its port, then serves until it is killed, or until its input closes with `--until-stdin-closes`.
POST /v1/chat/completions is the OpenAI-compatible wire, /v1/messages Anthropic's, and a path that ends in
:streamGenerateContent Google's. `fake_answers.py` documents the answers.
GET /stats?closed_early=N waits until N clients have left before their end, GET /asked returns the last request.
GET /mood/NAME makes every third answer from then on fail that way, as a prompt's CHAOS does; GET /mood/ ends it.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from importlib import import_module
from typing import Any

from tests.support.fake_answers import Answer, answer_to
from tests.support.fake_protocols import Wire, anthropic_wire, google_wire, openai_wire

BLOCK = 64
"""The number of words in one write when there is no delay."""

LAST_CHUNK = b"0\r\n\r\n"

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_KEY = re.compile(
    rb"(?:authorization: *bearer|x-api-key:|x-goog-api-key:) *([^\r]*)", re.IGNORECASE
)
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_REFUSALS: dict[str, tuple[int, dict[str, Any]]] = {
    "400": (400, {"message": "messages: not like this", "type": "invalid_request_error"}),
    "401": (401, {"message": "Incorrect API key: KEY", "type": "authentication_error"}),
    "404": (404, {"message": "no such model", "type": "not_found_error"}),
    "429": (429, {"message": "slow down", "type": "rate_limit_error"}),
    "429-soon": (429, {"message": "slow down", "type": "rate_limit_error"}),
    "429-wait": (429, {"message": "quota used up", "type": "rate_limit_error"}),
    "429-date": (429, {"message": "slow down", "type": "rate_limit_error"}),
    "500": (500, {"message": "it broke", "type": "api_error"}),
    "503": (503, {"message": "overloaded, come back later", "type": "overloaded_error"}),
    "quota": (429, {"message": "no credit left", "code": "insufficient_quota"}),
    "context": (
        400,
        {
            "message": "prompt is too long: this model's maximum context length is 10 tokens",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        },
    ),
}


@dataclass(slots=True)
class Stats:
    connections: int = 0
    requests: int = 0
    closed_early: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    failed_once: set[bytes] = field(default_factory=set)
    asked: dict[str, Any] = field(default_factory=dict)
    mood: str = ""

    async def count_early_close(self) -> None:
        async with self.changed:
            self.closed_early += 1
            self.changed.notify_all()


class ClientLeft(Exception):
    """The client closed its socket before the answer was over."""


@dataclass(frozen=True, slots=True)
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *events: bytes) -> None:
        """Each event is an HTTP chunk of its own, as providers send them."""
        await self.write(b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events))

    async def write(self, data: bytes) -> None:
        if self.reader.at_eof() or self.writer.transport.is_closing():
            raise ClientLeft
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Send nothing more until the client closes the connection."""
        await self.reader.read()
        raise ClientLeft

    def cut(self) -> None:
        self.writer.transport.abort()


async def serve_client(stats: Stats, client: Client) -> None:
    requests = 0
    try:
        while True:
            head = await client.reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await client.reader.readexactly(int(length[1])) if length else b""
            method, path, _ = head.split(b" ", 2)
            try:
                if method == b"GET":
                    await _get(stats, client, path.decode())
                else:
                    stats.connections += not requests
                    stats.requests += 1
                    requests += 1
                    await _post(stats, client, path, head, body)
            except (ClientLeft, ConnectionError):
                await stats.count_early_close()
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the client left between two requests
    finally:
        client.writer.close()


async def _get(stats: Stats, client: Client, path: str) -> None:
    if path.startswith("/stats"):
        wanted = int(path.partition("closed_early=")[2] or 0)
        async with stats.changed:
            await stats.changed.wait_for(lambda: stats.closed_early >= wanted)
        counts = {
            "connections": stats.connections,
            "requests": stats.requests,
            "closed_early": stats.closed_early,
        }
        await _whole(client, 200, counts)
    elif path == "/asked":
        await _whole(client, 200, stats.asked)
    elif path.startswith("/mood/"):
        stats.mood = path.removeprefix("/mood/")
        await _whole(client, 200, {"mood": stats.mood})
    else:
        await _whole(client, 200, {"object": "list", "data": [{"id": "fake-20"}]})


async def _post(stats: Stats, client: Client, path: bytes, head: bytes, body: bytes) -> None:
    request = json.loads(body)
    request.setdefault("model", path.decode().rpartition("/")[2].partition(":")[0])
    stats.asked = request
    answer = answer_to(request)
    chaos = answer.chaos or ("" if stats.requests % 3 else stats.mood)
    if answer.once and body in stats.failed_once:
        chaos = ""
    elif answer.once:
        stats.failed_once.add(body)
    if chaos in _REFUSALS:
        await _refuse(client, chaos, head)
    elif chaos == "unstreamed":
        await _whole(client, 200, {"choices": [{"message": {"content": "all at once"}}]})
    elif chaos == "silent":
        await client.gone()
    else:
        await client.write(_STREAM_HEAD)
        await _stream(client, _wire_of(path)(request, answer), answer, chaos)


def _wire_of(path: bytes) -> Callable[[dict[str, Any], Answer], Wire]:
    if b":streamGenerateContent" in path:
        return google_wire
    return anthropic_wire if b"/messages" in path else openai_wire


async def _refuse(client: Client, chaos: str, head: bytes) -> None:
    status, error = _REFUSALS[chaos]
    key = _KEY.search(head)
    message = error["message"].replace("KEY", key[1].decode() if key else "none")
    headers = {}
    if chaos == "429":
        headers["retry-after"] = "7"
    if chaos == "429-soon":
        headers["retry-after"] = "0.2"
    if chaos == "429-wait":
        headers["retry-after"] = "3"
    if chaos == "429-date":
        headers["retry-after"] = format_datetime(_now() + timedelta(hours=1), usegmt=True)
    await _whole(client, status, {"type": "error", "error": {**error, "message": message}}, headers)


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  a server's own clock


async def _whole(
    client: Client, status: int, body: dict[str, Any], headers: dict[str, str] | None = None
) -> None:
    out = json.dumps(body).encode()
    lines = [
        f"HTTP/1.1 {status} X",
        "content-type: application/json",
        f"content-length: {len(out)}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    await client.write("\r\n".join(lines).encode() + b"\r\n\r\n" + out)


async def _stream(client: Client, wire: Wire, answer: Answer, chaos: str) -> None:
    await client.send(*wire.opening)
    words = 0 if answer.calls else answer.words
    if chaos == "cut-in-calls":
        # All of the last call but the end of its arguments.
        await client.send(*wire.closing[:-4])
        client.cut()
        return
    if chaos:
        await client.send(*([wire.word] * min(words, 3)))
        await _break(client, wire, chaos)
        return
    if answer.delay:
        due = asyncio.get_running_loop().time()
        for _ in range(words):
            await client.send(wire.word)
            # By a fixed schedule, so that a late word doesn't delay those after it.
            due += answer.delay
            left = due - asyncio.get_running_loop().time()
            await asyncio.sleep(max(left, 0))  # noqa: TID251  a slow provider is what was asked for
    else:
        while words:
            await client.send(*([wire.word] * min(words, BLOCK)))
            words -= min(words, BLOCK)
    await client.send(*wire.closing)
    await client.write(LAST_CHUNK)


async def _break(client: Client, wire: Wire, chaos: str) -> None:
    match chaos:
        case "cut":
            client.cut()
        case "early-end":
            await client.write(LAST_CHUNK)
        case "malformed":
            await client.send(wire.malformed)
            await client.gone()
        case "error":
            await client.send(wire.error)
            await client.gone()
        case "stall":
            await client.gone()
        case _:
            raise ValueError(f"no such chaos: {chaos}")


async def serve(port: int, *, until_stdin_closes: bool) -> None:
    stats = Stats()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve_client(stats, Client(reader, writer))

    server = await asyncio.start_server(  # noqa: TID251  it serves until its process ends
        connected, "127.0.0.1", port, limit=1 << 26, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    if until_stdin_closes:
        await asyncio.to_thread(sys.stdin.read)
    else:
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--until-stdin-closes", action="store_true")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(options.port, until_stdin_closes=options.until_stdin_closes))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        return import_module("uvloop").new_event_loop  # type: ignore[no-any-return]  # optional
    except ImportError:
        return None


if __name__ == "__main__":
    main()
