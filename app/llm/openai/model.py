"""Models with an OpenAI-compatible API: OpenAI, Azure, vLLM, Ollama, OpenRouter, Groq …"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2

from app.clock import Clock, SystemClock, new_id
from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind, failed
from app.domain.json_values import JsonObject
from app.llm.failures import failure_of_answer, failure_of_unstreamed, presentable, secrets_of
from app.llm.openai.options import dialect_of
from app.llm.openai.provider_data import issuer_of
from app.llm.openai.request import request_body
from app.llm.openai.stream import OpenAIStream
from app.runtime.ports.models import ModelChunk, ModelRequest

CONNECT_TIMEOUT_SECONDS = 10.0
CLOSE_TIMEOUT_SECONDS = 0.1
"""How long to wait for the end of a response after its answer is complete, to reuse the connection."""
MAX_ERROR_BODY_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIEndpoint:
    """The address and the settings of a model.

    `timeout` limits the time until the answer begins, `idle_timeout` the time between its pieces.
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 60.0
    idle_timeout: float = 60.0
    options: Mapping[str, Any] = field(default_factory=dict)


class OpenAICompatibleModel:
    """One model of one endpoint. The client is shared; this model never closes it."""

    def __init__(
        self, endpoint: OpenAIEndpoint, client: httpx2.AsyncClient, clock: Clock | None = None
    ) -> None:
        self._endpoint = endpoint
        self._client = client
        self._clock = clock or SystemClock()
        self._dialect = dialect_of(endpoint.base_url, endpoint.options)
        base = httpx2.URL(endpoint.base_url)
        self._url = base.copy_with(path=base.path.rstrip("/") + "/chat/completions")
        self._headers = httpx2.Headers(
            {
                "accept": "text/event-stream",
                "accept-encoding": "identity",
                "content-type": "application/json",
                "user-agent": "holdfast",
            }
        )
        if endpoint.api_key:
            self._headers["authorization"] = f"Bearer {endpoint.api_key}"
        self._headers.update(endpoint.headers)
        self._secrets = secrets_of(endpoint.api_key, endpoint.headers)

    @property
    def name(self) -> str:
        return self._endpoint.model

    def has_native_output(self, *, with_tools: bool) -> bool:
        return self._dialect.keeps_to_schemas

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[AsyncIterator[Sequence[ModelChunk]]]:
        issuer = issuer_of(
            self._endpoint.base_url, request.options.upstream_model or self._endpoint.model
        )
        body = request_body(
            request, self._endpoint.model, self._endpoint.options, self._dialect, issuer
        )
        response = await self._open(body)
        try:
            async with aclosing(self._chunks(response, issuer)) as chunks:
                yield chunks
        finally:
            await response.aclose()

    async def _open(self, body: bytes) -> httpx2.Response:
        limits = {
            "connect": min(CONNECT_TIMEOUT_SECONDS, self._endpoint.timeout),
            "write": self._endpoint.timeout,
            "read": self._endpoint.timeout,
            "pool": None,
        }
        request = httpx2.Request(
            "POST", self._url, headers=self._headers, content=body, extensions={"timeout": limits}
        )
        try:
            response = await self._client.send(request, stream=True)
            # The client reads `limits` again for the body, where the idle time-out applies.
            limits["read"] = self._endpoint.idle_timeout
            if response.status_code != 200 or _is_json(response):
                raise self._presentable(await self._failure_of(response))
            return response
        except httpx2.HTTPError as error:
            # `from None`: the request in the error contains the key.
            raise self._presentable(_connection_failure(error)) from None

    async def _failure_of(self, response: httpx2.Response) -> InferenceFailed:
        """The failure of a response that isn't a stream."""
        body = b""
        try:
            async with aclosing(response.aiter_bytes()) as pieces:
                async for piece in pieces:
                    body += piece
                    if len(body) > MAX_ERROR_BODY_BYTES:
                        break
        finally:
            await response.aclose()
        if response.status_code != 200:
            return failure_of_answer(
                response.status_code, body, response.headers, self._clock.now()
            )
        return failure_of_unstreamed(body)

    async def _chunks(
        self, response: httpx2.Response, issuer: JsonObject
    ) -> AsyncGenerator[Sequence[ModelChunk]]:
        stream = OpenAIStream(_new_call_id, issuer)
        async with aclosing(response.aiter_bytes()) as pieces:
            try:
                async for piece in pieces:
                    chunks = stream.feed(piece)
                    if stream.complete:
                        await _drain(pieces)
                    if chunks:
                        yield chunks
                    if stream.failure is not None or stream.complete:
                        break
            except httpx2.ReadTimeout:
                limit = self._endpoint.idle_timeout
                raise failed(
                    FailureKind.TIMEOUT, f"the model sent nothing for {limit:g} s"
                ) from None
            except httpx2.HTTPError:
                # A cut connection does no harm if the answer was already complete.
                pass
        if not stream.complete and (chunks := stream.end()):
            yield chunks
        if stream.failure is not None:
            raise self._presentable(stream.failure)

    def _presentable(self, failure: InferenceFailed) -> InferenceFailed:
        return presentable(failure, self._secrets)


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read the end of a response whose answer is complete: only then is its connection reused."""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
            async for _ in pieces:
                pass


def _connection_failure(error: httpx2.HTTPError) -> InferenceFailed:
    """The failure of a request without a response. Its text is ours: protocol errors may quote headers."""
    match error:
        case httpx2.ConnectTimeout():
            return failed(FailureKind.TIMEOUT, "no connection to the model's server in time")
        case httpx2.TimeoutException():
            return failed(FailureKind.TIMEOUT, "the model's server didn't begin to answer in time")
        case httpx2.ConnectError():
            return failed(FailureKind.PROVIDER, f"no connection to the model's server: {error}")
        case httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol():
            return failed(
                FailureKind.INVALID_REQUEST,
                "the request can't be written: check base_url, api_key and headers of the model",
            )
        case _:
            return failed(
                FailureKind.PROVIDER, "the connection broke before the model's server answered"
            )


def _is_json(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").startswith("application/json")


def _new_call_id() -> str:
    return f"call_{new_id()}"
