"""Sends a request for an answer, and reads its stream, with time-outs and failures as the runtime knows them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

import httpx2

from app.clock import Clock, SystemClock
from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind, failed
from app.llm.failures import failure_of_answer, failure_of_unstreamed, presentable
from app.llm.http.answer_parser import AnswerParser
from app.llm.http.bodies import StreamedBody
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
        client: httpx2.AsyncClient,
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
        self._timeout = timeout
        self._idle_timeout = idle_timeout
        self._secrets = secrets
        self._clock = clock or SystemClock()

    @asynccontextmanager
    async def chunks_of(
        self, response: httpx2.Response, stream: AnswerParser
    ) -> AsyncIterator[AsyncIterator[Sequence[ModelChunk]]]:
        """The chunks of an open response, which is closed at the end."""
        try:
            async with aclosing(self._chunks(response, stream)) as chunks:
                yield chunks
        finally:
            await response.aclose()

    async def open(
        self,
        body: bytes,
        more_headers: Mapping[str, str] | None = None,
        url: httpx2.URL | None = None,
    ) -> httpx2.Response:
        """Send a request, to this address if one is given. Raises `InferenceFailed` if the answer isn't a stream."""
        limits = {
            "connect": min(CONNECT_TIMEOUT_SECONDS, self._timeout),
            "write": self._timeout,
            "read": self._timeout,
            "pool": None,
        }
        headers = self.headers
        if more_headers:
            headers = httpx2.Headers(headers)
            headers.update(more_headers)
        request = httpx2.Request(
            "POST", url or self.url, headers=headers, content=body, extensions={"timeout": limits}
        )
        try:
            response = await self._client.send(request, stream=True)
            # The client reads `limits` again for the body, where the idle time-out applies.
            limits["read"] = self._idle_timeout
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
        self, response: httpx2.Response, stream: AnswerParser
    ) -> AsyncGenerator[Sequence[ModelChunk]]:
        async with aclosing(StreamedBody(response, self._idle_timeout)) as body:
            try:
                while piece := await body.read():
                    chunks = stream.feed(piece)
                    if stream.complete:
                        await _drain(body)
                    if chunks:
                        yield chunks
                    if stream.failure is not None or stream.complete:
                        break
            except httpx2.ReadTimeout:
                limit = self._idle_timeout
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


async def _drain(body: StreamedBody) -> None:
    """Read the end of a response whose answer is complete: only then is its connection reused."""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
            while await body.read():
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
