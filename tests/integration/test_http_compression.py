"""Responses are compressed where the client asks for it, and each event of a stream is sent at once."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.http.compression.responses import MIN_BYTES, THREAD_MIN_BYTES
from tests.integration.conftest import AGENTS
from tests.support.envelopes import Envelope, untimed
from tests.support.event_order import check_run
from tests.support.servers import Server, serving
from tests.support.streams import TIMEOUT_SECONDS, Client, start_body
from tests.surface.raw_http import RawHTTP, raw_http

pytestmark = pytest.mark.anyio

PLAIN = {"Accept-Encoding": "identity"}
GZIP = {"Accept-Encoding": "gzip"}


@pytest.fixture(scope="module")
async def server(served_database: str) -> AsyncIterator[Server]:
    async with serving(served_database, agents=AGENTS) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client() as opened:
        yield opened


async def answer_to(server: Server, *lines: str) -> tuple[dict[str, str], bytes]:
    """Headers and body of a response, as they were sent."""
    async with raw_http(server.base) as connection:
        own = f"Host: 127.0.0.1:{server.port}"
        head = "".join(f"{line}\r\n" for line in (*lines, own, "Connection: close"))
        await connection.send(head.encode() + b"\r\n")
        head_bytes = await connection.head()
        body = await connection.read_all()
    fields = (line.partition(": ") for line in head_bytes.decode().split("\r\n")[1:])
    return {name.lower(): value for name, _, value in fields}, body


@pytest.mark.parametrize(
    "accepted, is_compressed",
    [
        ("gzip", True),
        ("GZIP", True),
        ("gzip, deflate, br, zstd", True),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", True),
        ("gzip;q=0", False),
        ("identity, gzip;q=0.5", False),
        ("deflate", False),
        ("not-gzip", False),
        ("", False),
    ],
)
async def test_json_is_compressed_where_the_client_asks_for_it(
    server: Server, accepted: str, is_compressed: bool
) -> None:
    lines = ["GET /openapi.json HTTP/1.1", f"Accept-Encoding: {accepted}"]
    headers, body = await answer_to(server, *lines)
    assert (headers.get("content-encoding") == "gzip") is is_compressed
    assert ("Accept-Encoding" in headers.get("vary", "")) is is_compressed
    assert int(headers["content-length"]) == len(body)
    plain = (await answer_to(server, "GET /openapi.json HTTP/1.1"))[1]
    assert (gzip.decompress(body) if is_compressed else body) == plain
    assert len(plain) > THREAD_MIN_BYTES
    assert not is_compressed or len(body) < len(plain) / 3


async def test_small_responses_and_errors_are_not_compressed(client: Client) -> None:
    for path in ("/health/live", "/v1/nothing"):
        response = await client.http.get(path, headers=GZIP)
        assert len(response.content) < MIN_BYTES
        assert "content-encoding" not in response.headers


async def test_tags_and_conditions_are_the_same_for_both_forms(client: Client) -> None:
    run_id = (await client.start("quick", "x" * 2 * MIN_BYTES))["id"]
    await client.settled(run_id)
    path = f"/v1/runs/{run_id}"
    plain, small = [await client.http.get(path, headers=one) for one in (PLAIN, GZIP)]
    assert small.headers["content-encoding"] == "gzip"
    assert plain.json() == small.json()
    assert plain.headers["etag"] == small.headers["etag"]
    for form in (PLAIN, GZIP):
        known = {**form, "If-None-Match": small.headers["etag"]}
        unchanged = await client.http.get(path, headers=known)
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert "content-encoding" not in unchanged.headers


async def test_a_long_response_that_is_sent_in_slices_is_compressed(client: Client) -> None:
    run_id = (await client.start("quick", "word " * 40_000))["id"]
    await client.settled(run_id)
    path = f"/v1/runs/{run_id}/snapshot"
    plain, small = [await client.http.get(path, headers=one) for one in (PLAIN, GZIP)]
    assert len(plain.content) > THREAD_MIN_BYTES
    assert (small.headers["content-encoding"], small.json()) == ("gzip", plain.json())


async def test_every_event_of_a_compressed_stream_is_sent_at_once(
    server: Server, client: Client
) -> None:
    """All events up to the suspension can be read while the stream stays open."""
    started = await client.start("quick", 'CALL risky {"what": "it"}')
    path = f"/v1/runs/{started['id']}"
    async with raw_http(server.base) as connection:
        head = [
            f"GET {path}/events?follow=1&include=state,trace HTTP/1.1",
            f"Host: 127.0.0.1:{server.port}",
            "Accept: text/event-stream",
            "Accept-Encoding: gzip",
        ]
        await connection.send("".join(f"{line}\r\n" for line in head).encode() + b"\r\n")
        assert b"content-encoding: gzip" in (await connection.head()).lower()
        reader = _Frames(connection)
        while not any(event["event_type"] == "run_finish" for event in reader.events):
            await reader.read()
        await client.decide(await client.settled(started["id"]), "approve")
        while not reader.is_over:
            await reader.read()
    check_run(reader.events)
    assert reader.events == [untimed(event) for event in await client.log(path)]


class _Frames:
    """Reads the chunks of a compressed stream as they arrive."""

    def __init__(self, connection: RawHTTP) -> None:
        self.events: list[dict[str, Any]] = []
        self.is_over = False
        self._connection = connection
        self._gzip = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._text = b""
        self._envelope = Envelope()

    async def read(self) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            size = int(await self._connection.reader.readline(), 16)
            chunk = (await self._connection.reader.readexactly(size + 2))[:-2]
        self.is_over = size == 0
        *frames, self._text = (self._text + self._gzip.decompress(chunk)).split(b"\n\n")
        # A chunk has whole frames.
        assert self._text == b""
        for frame in frames:
            fields = dict(line.split(": ", 1) for line in frame.decode().split("\n"))
            if "data" in fields:
                self.events.append(self._envelope.restore(fields.get("id"), fields["data"]))


async def test_a_compressed_start_streams_the_run(client: Client) -> None:
    headers = {"Accept": "text/event-stream", **GZIP}
    body = start_body("quick", "hello")
    async with client.http.stream("POST", "/v1/runs", headers=headers, json=body) as response:
        text = (await response.aread()).decode()
    assert response.headers["content-encoding"] == "gzip"
    assert text.rstrip().endswith("}")
    assert '"run_finish"' in text
