"""Answers of model servers that compress them, break off, refuse early or redirect, as the runtime gets them."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest

from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind
from app.llm.http.client import StreamingClient
from app.llm.http.endpoints import ModelEndpoint
from app.llm.openai.model import OpenAICompatibleModel
from app.runtime.ports.models import ModelChunk, TextChunk
from tests.support.controlled_server import ControlledServer
from tests.support.transcripts import asking

pytestmark = pytest.mark.anyio

EVENTS = (
    b'data: {"choices": [{"delta": {"content": "hello"}}]}\n\n'
    b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
KEY = "a-secret-key"


@pytest.fixture
async def client() -> AsyncIterator[StreamingClient]:
    async with StreamingClient() as opened:
        yield opened


async def outcome(
    client: StreamingClient, host: ControlledServer, *writes: bytes
) -> list[ModelChunk] | InferenceFailed:
    """The chunks of the answer, or its failure. The server then ends the connection."""
    async with asyncio.TaskGroup() as tasks:
        answering = tasks.create_task(_outcome_of(_model(client, host), "hello"))
        connection = await host.connection()
        await connection.reader.readuntil(b"\r\n\r\n")
        for write in writes:
            connection.writer.write(write)
            await connection.writer.drain()
        connection.writer.close()
        return await answering


def _model(client: StreamingClient, host: ControlledServer) -> OpenAICompatibleModel:
    endpoint = ModelEndpoint(
        base_url=f"http://127.0.0.1:{host.port}/v1", model="fake-5", api_key=KEY
    )
    return OpenAICompatibleModel(endpoint, client)


async def _outcome_of(
    model: OpenAICompatibleModel, prompt: str
) -> list[ModelChunk] | InferenceFailed:
    found: list[ModelChunk] = []
    try:
        async with model.stream(asking(prompt)) as chunks:
            async for some in chunks:
                found += some
    except InferenceFailed as failure:
        return failure
    return found


async def failure_of(
    client: StreamingClient, host: ControlledServer, *writes: bytes
) -> tuple[FailureKind, str]:
    failure = await outcome(client, host, *writes)
    assert isinstance(failure, InferenceFailed)
    assert KEY not in f"{failure} {failure.detail} {failure.__cause__!r}"
    return FailureKind(failure.kind), str(failure)


def head(status: str, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode()


async def test_a_compressed_answer_is_read(client: StreamingClient, host: ControlledServer) -> None:
    chunks = await outcome(
        client, host, head("200 OK", "content-encoding: gzip"), gzip.compress(EVENTS)
    )
    assert isinstance(chunks, list)
    assert TextChunk("hello") in chunks


@pytest.mark.parametrize(
    "encoding, body, sentence",
    [
        ("br", EVENTS, "the model's answer can't be decoded: the body has the unknown encoding 'br'"),
        ("gzip", EVENTS, "the model's answer can't be decoded: the body isn't gzip"),
    ],
)  # fmt: skip
async def test_an_answer_that_cannot_be_decoded_says_so(
    client: StreamingClient, host: ControlledServer, encoding: str, body: bytes, sentence: str
) -> None:
    for kind in ("text/event-stream", "application/json"):
        first = head("200 OK", f"content-encoding: {encoding}", f"content-type: {kind}")
        found, text = await failure_of(client, host, first, body)
        assert found is FailureKind.PROVIDER
        assert sentence in text


@pytest.mark.parametrize(
    "status, expected",
    [
        ("401 Unauthorized", FailureKind.UNAUTHORIZED),
        ("429 Too Many Requests", FailureKind.RATE_LIMITED),
        ("503 Service Unavailable", FailureKind.OVERLOADED),
    ],
)
@pytest.mark.parametrize(
    "headers, body",
    [
        (["content-length: 100"], b'{"error": "cut'),
        (["transfer-encoding: chunked"], b"not a chunk"),
        (["content-encoding: br", "content-length: 4"], b"\x0b\x01\x80\x03"),
        (["content-encoding: gzip", "content-length: 5"], b"plain"),
    ],
    ids=["cut", "no chunk", "unknown encoding", "wrong encoding"],
)
async def test_a_status_counts_although_its_body_cannot_be_read(
    client: StreamingClient,
    host: ControlledServer,
    status: str,
    expected: FailureKind,
    headers: list[str],
    body: bytes,
) -> None:
    kind, _ = await failure_of(client, host, head(status, *headers), body)
    assert kind is expected


async def test_a_request_that_is_refused_before_it_was_read_is_too_large(
    client: StreamingClient, host: ControlledServer
) -> None:
    async with asyncio.TaskGroup() as tasks:
        answering = tasks.create_task(_outcome_of(_model(client, host), "x" * 8_000_000))
        connection = await host.connection()
        await connection.reader.readuntil(b"\r\n\r\n")
        connection.writer.write(head("413 Content Too Large", "content-length: 0"))
        failure = await answering
    assert isinstance(failure, InferenceFailed)
    assert failure.kind == FailureKind.CONTEXT_OVERFLOW


async def test_a_redirect_is_a_failure(client: StreamingClient, host: ControlledServer) -> None:
    moved = head("308 Moved", f"location: http://127.0.0.1:{host.port}/v2", "content-length: 0")
    kind, text = await failure_of(client, host, moved)
    assert kind is FailureKind.INVALID_REQUEST
    assert "308" in text
    assert host.connections.empty()
