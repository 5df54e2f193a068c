"""Models with an OpenAI-compatible API: OpenAI, Azure, vLLM, Ollama, OpenRouter, Groq …"""

from collections.abc import Sequence
from functools import partial

import httpx2

from app.clock import Clock
from app.llm.call_ids import new_call_id
from app.llm.encoded_messages import EncodedMessages
from app.llm.failures import secrets_of
from app.llm.http.answers import STREAM_HEADERS, Answer, AnswerEndpoint
from app.llm.http.client import StreamingClient
from app.llm.http.endpoints import ModelEndpoint
from app.llm.openai.options import dialect_of
from app.llm.openai.provider_data import issuer_of
from app.llm.openai.request import request_body
from app.llm.openai.stream import OpenAIStream
from app.runtime.ports.models import ModelRequest


class OpenAICompatibleModel:
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
        self._dialect = dialect_of(endpoint.base_url, endpoint.options)
        base = httpx2.URL(endpoint.base_url)
        url = base.copy_with(path=base.path.rstrip("/") + "/chat/completions")
        headers = httpx2.Headers(STREAM_HEADERS)
        if endpoint.api_key:
            headers["authorization"] = f"Bearer {endpoint.api_key}"
        headers.update(endpoint.headers)
        self.answers = AnswerEndpoint(
            client,
            url,
            headers,
            timeout=endpoint.timeout,
            idle_timeout=endpoint.idle_timeout,
            secrets=secrets_of(endpoint.api_key, endpoint.headers),
            clock=clock,
        )

    @property
    def name(self) -> str:
        return self._endpoint.model

    def has_native_output(self, *, with_tools: bool, models: Sequence[str] = ()) -> bool:
        return self._dialect.keeps_to_schemas

    def stream(self, request: ModelRequest) -> Answer:
        issuer = issuer_of(
            self._endpoint.base_url, request.options.upstream_model or self._endpoint.model
        )
        body = request_body(
            request,
            self._endpoint.model,
            self._endpoint.options,
            self._dialect,
            issuer,
            self._encoded,
        )
        return self.answers.answer(
            partial(self.answers.open, body), OpenAIStream(new_call_id, issuer)
        )
