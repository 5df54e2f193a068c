"""Sends a request for an answer, and reads its stream, with time-outs and failures as the runtime knows them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Self

import httpx2

from app.clock import Clock, SystemClock
from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind, failed
from app.llm.failures import failure_of_answer, failure_of_unstreamed, presentable
from app.llm.http.answer_parser import AnswerParser
from app.llm.http.client import StreamingClient
from app.llm.http.requests import PostRequest, TimeLimits
from app.llm.http.responses import HttpResponse
from app.runtime.ports.models import ModelChunk

CONNECT_TIMEOUT_SECONDS = 10.0
CLOSE_TIMEOUT_SECONDS = 0.1
"""How long to wait for the end of a response after its answer is complete, to reuse the connection."""
MAX_ERROR_BODY_BYTES = 64 * 1024

STREAM_HEADERS: Mapping[str, str] = {
    "accept": "text/event-stream",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "holdfast",
}


class AnswerEndpoint:
    """One address that streams answers. The client is shared; the endpoint never closes it.

    `timeout` limits the time until the answer begins, `idle_timeout` the time between its pieces. `secrets` are
    removed from the texts of failures.
    """

    def __init__(
        self,
        client: StreamingClient,
        url: httpx2.URL,
        headers: httpx2.Headers,
        *,
        timeout: float,
        idle_timeout: float,
        secrets: Sequence[str],
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self.url = url
        self.headers = headers
        self._limits = TimeLimits(min(CONNECT_TIMEOUT_SECONDS, timeout), timeout, idle_timeout)
        self._secrets = secrets
        self._clock = clock or SystemClock()
        self._request: PostRequest | None = None
        """To this address with these headers."""

    def answer(
        self, request: Callable[[], Awaitable[HttpResponse]], parser: AnswerParser
    ) -> "Answer":
        """The answer to a request, which is sent when the answer's block begins."""
        return Answer(request, parser, self._limits.idle, self._secrets)

    async def open(
        self,
        body: bytes,
        more_headers: Mapping[str, str] | None = None,
        url: httpx2.URL | None = None,
    ) -> HttpResponse:
        """Send a request, to this address if one is given. Raises `InferenceFailed` if the answer isn't a stream."""
        try:
            request = self._request_to(url, more_headers)
            response = await self._client.send(request, body, self._limits)
            if response.status != 200 or _is_json(response):
                raise self._presentable(await self._failure_of(response))
            return response
        except httpx2.HTTPError as error:
            # `from None`: the error may contain the key.
            raise self._presentable(_connection_failure(error)) from None

    def _request_to(
        self, url: httpx2.URL | None, more_headers: Mapping[str, str] | None
    ) -> PostRequest:
        if url is None and not more_headers:
            if self._request is None:
                self._request = PostRequest.to(self.url, self.headers)
            return self._request
        headers = httpx2.Headers(self.headers)
        headers.update(more_headers)
        return PostRequest.to(url or self.url, headers)

    async def _failure_of(self, response: HttpResponse) -> InferenceFailed:
        """The failure of a response that isn't a stream."""
        body = b""
        try:
            while len(body) <= MAX_ERROR_BODY_BYTES and (piece := await response.read()):
                body += piece
        except httpx2.HTTPError:
            # The status tells more than the end of the body.
            if response.status == 200:
                raise
        finally:
            await response.aclose()
        if response.status != 200:
            return failure_of_answer(response.status, body, response.headers, self._clock.now())
        return failure_of_unstreamed(body)

    def _presentable(self, failure: InferenceFailed) -> InferenceFailed:
        return presentable(failure, self._secrets)


class Answer:
    """An answer within its block: an iterator of its chunks. The end of the block closes the response.

    A class, because the generators for a context and its chunks would cost more than the request.
    """

    def __init__(
        self,
        request: Callable[[], Awaitable[HttpResponse]],
        parser: AnswerParser,
        idle_timeout: float,
        secrets: Sequence[str],
    ) -> None:
        self._request = request
        self._parser = parser
        self._idle_timeout = idle_timeout
        self._secrets = secrets
        self._response: HttpResponse | None = None
        self._is_over = False

    async def __aenter__(self) -> Self:
        self._response = await self._request()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._response is not None:
            await self._response.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[ModelChunk]:
        while not self._is_over:
            if chunks := await self._read():
                return chunks
        if self._parser.failure is not None:
            raise presentable(self._parser.failure, self._secrets)
        raise StopAsyncIteration

    async def _read(self) -> Sequence[ModelChunk]:
        """The chunks in the next bytes."""
        assert self._response is not None
        parser = self._parser
        try:
            piece = await self._response.read()
        except httpx2.ReadTimeout:
            limit = self._idle_timeout
            raise failed(FailureKind.TIMEOUT, f"the model sent nothing for {limit:g} s") from None
        except httpx2.DecodingError as error:
            raise presentable(_decoding_failure(error), self._secrets) from None
        except httpx2.HTTPError:
            # A cut connection does no harm if the answer was already complete.
            piece = b""
        if not piece:
            self._is_over = True
            return parser.end()
        chunks = parser.feed(piece)
        if parser.complete:
            await _read_end(self._response)
        self._is_over = parser.complete or parser.failure is not None
        return chunks


async def _read_end(response: HttpResponse) -> None:
    """Read the end of a response whose answer is complete: only then is its connection reused."""
    if response.is_complete:
        return
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
            while await response.read():
                pass


def _connection_failure(error: httpx2.HTTPError) -> InferenceFailed:
    """The failure of a request without a response. Its text is ours: protocol errors may quote headers."""
    match error:
        case httpx2.ConnectTimeout():
            return failed(FailureKind.TIMEOUT, "no connection to the model's server in time")
        case httpx2.TimeoutException():
            return failed(FailureKind.TIMEOUT, "the model's server didn't begin to answer in time")
        case httpx2.ConnectError() | httpx2.ProxyError():
            return failed(FailureKind.PROVIDER, f"no connection to the model's server: {error}")
        case httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol():
            return failed(
                FailureKind.INVALID_REQUEST,
                "the request can't be written: check base_url, api_key and headers of the model",
            )
        case httpx2.DecodingError():
            return _decoding_failure(error)
        case _:
            return failed(
                FailureKind.PROVIDER, "the connection broke before the model's server answered"
            )


def _decoding_failure(error: httpx2.DecodingError) -> InferenceFailed:
    return failed(FailureKind.PROVIDER, f"the model's answer can't be decoded: {error}")


def _is_json(response: HttpResponse) -> bool:
    return response.headers.get("content-type", "").startswith("application/json")
