"""An MCP server over HTTP that answers properly until a tool is called, and then misbehaves in one way."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.listeners import listening

_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
_TOOL = {"name": "work", "description": "Does it.", "inputSchema": _SCHEMA}
_seen: set[str] = set()
_ANSWERS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "hostile", "version": "1"},
    },
    "tools/list": {"tools": [_TOOL]},
}


@asynccontextmanager
async def hostile_server(way: str) -> AsyncIterator[str]:
    """Serve on a free port; yields the address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await _answer(way, await _body(reader), writer)

    async with listening(serve) as port:
        yield f"http://127.0.0.1:{port}/mcp"


async def _body(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = head.partition("content-length:")[2].split("\r\n")[0].strip()
    message: dict[str, Any] = json.loads(await reader.readexactly(int(length))) if length else {}
    return message


async def _answer(way: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    method = message.get("method")
    if method == "tools/call" and way == "headers-once":
        _ask_for_headers(message, writer)
    elif method == "tools/call":
        await _misbehave(way, writer)
    elif method in _ANSWERS:
        result = {"jsonrpc": "2.0", "id": message["id"], "result": _ANSWERS[method]}
        _send(writer, "200 OK", json.dumps(result).encode())
    elif "id" in message:
        error = {"code": -32601, "message": "Method not found"}
        body = {"jsonrpc": "2.0", "id": message["id"], "error": error}
        _send(writer, "200 OK", json.dumps(body).encode())
    else:
        _send(writer, "202 Accepted" if method else "405 Method Not Allowed", b"")
    await writer.drain()


def _ask_for_headers(message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """Refuse the first call of an argument, as after a change of the tool's headers, and answer the second."""
    text = message["params"]["arguments"]["text"]
    body: dict[str, Any] = {"result": {"content": [{"type": "text", "text": "done"}]}}
    if text not in _seen:
        _seen.add(text)
        body = {"error": {"code": -32020, "message": "Header mismatch"}}
    _send(writer, "200 OK", json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}).encode())


async def _misbehave(way: str, writer: asyncio.StreamWriter) -> None:
    never = asyncio.Event()
    match way:
        case "slow-loris":
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n"
            )
            await _each_moment(writer, b" ")
        case "slow-events":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            await _each_moment(writer, b": still here\n\n")
        case "endless-body":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
            await _without_end(writer)
        case "endless-event":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ")
            await _without_end(writer)
        case "elsewhere":
            _send(writer, "307 Temporary Redirect", b"", "location: http://127.0.0.1:9/mcp\r\n")
        case "silent":
            await never.wait()


async def _each_moment(writer: asyncio.StreamWriter, piece: bytes) -> None:
    never = asyncio.Event()
    while True:
        writer.write(piece)
        await writer.drain()
        try:
            async with asyncio.timeout(0.05):
                await never.wait()
        except TimeoutError:
            continue


async def _without_end(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


def _send(writer: asyncio.StreamWriter, status: str, body: bytes, more: str = "") -> None:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{more}content-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
