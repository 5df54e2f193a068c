"""Anthropic's models, over the Messages API."""

from collections.abc import Sequence
from functools import partial

import httpx2

from app.clock import Clock
from app.domain.errors import InferenceFailed
from app.llm.anthropic.model_traits import traits_of
from app.llm.anthropic.options import parameters_of
from app.llm.anthropic.request import VERSION_HEADER, AnthropicRequest, anthropic_request
from app.llm.anthropic.stream import AnthropicStream
from app.llm.call_ids import new_call_id
from app.llm.encoded_messages import EncodedMessages
from app.llm.failures import secrets_of
from app.llm.http.answers import STREAM_HEADERS, Answer, AnswerEndpoint
from app.llm.http.client import StreamingClient
from app.llm.http.endpoints import ModelEndpoint
from app.llm.http.responses import HttpResponse
from app.runtime.ports.models import ModelRequest


class AnthropicModel:
    """One model of one endpoint. The client is shared; this model never closes it."""

    def __init__(
        self,
        endpoint: ModelEndpoint,
        client: StreamingClient,
        clock: Clock | None = None,
        encoded: EncodedMessages | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._encoded = encoded
        self._parameters = parameters_of(endpoint.options, endpoint.headers)
        base = httpx2.URL(endpoint.base_url)
        path = base.path.rstrip("/").removesuffix("/v1")
        headers = httpx2.Headers(STREAM_HEADERS)
        if endpoint.api_key:
            headers["x-api-key"] = endpoint.api_key
        headers.update(self._parameters.headers)
        self.answers = AnswerEndpoint(
            client,
            base.copy_with(path=f"{path}/v1/messages"),
            headers,
            timeout=endpoint.timeout,
            idle_timeout=endpoint.idle_timeout,
            secrets=secrets_of(endpoint.api_key, self._parameters.headers),
            clock=clock,
        )

    @property
    def name(self) -> str:
        return self._endpoint.model

    def has_native_output(self, *, with_tools: bool, models: Sequence[str] = ()) -> bool:
        return all(traits_of(name).has_native_output for name in models or [self.name])

    def stream(self, request: ModelRequest) -> Answer:
        model, address = request.options.upstream_model or self.name, self._endpoint.base_url
        sent = anthropic_request(request, model, address, self._parameters, self._encoded)
        return self.answers.answer(
            partial(self._open, sent), AnthropicStream(new_call_id, address, model)
        )

    async def _open(self, request: AnthropicRequest) -> HttpResponse:
        """Send the request. If a thought in it is stale, send it once more without such thoughts."""
        try:
            return await self._send(request)
        except InferenceFailed as failure:
            if not request.has_stale_thought(failure):
                raise
        return await self._send(request.without_stale_thoughts())

    async def _send(self, request: AnthropicRequest) -> HttpResponse:
        headers = request.headers()
        if VERSION_HEADER in self.answers.headers:
            del headers[VERSION_HEADER]
        return await self.answers.open(request.content(), headers)
