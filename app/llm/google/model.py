"""Google's models, over the Gemini API."""

from collections.abc import Sequence
from functools import partial
from urllib.parse import quote

import httpx2

from app.clock import Clock
from app.llm.call_ids import new_call_id
from app.llm.encoded_messages import EncodedMessages
from app.llm.failures import secrets_of
from app.llm.google.model_traits import traits_of
from app.llm.google.options import parameters_of
from app.llm.google.request import google_request
from app.llm.google.stream import GoogleStream
from app.llm.http.answers import STREAM_HEADERS, Answer, AnswerEndpoint
from app.llm.http.client import StreamingClient
from app.llm.http.endpoints import ModelEndpoint
from app.runtime.ports.models import ModelRequest

_VERSION = "/v1beta"
_ANSWER_SECONDS = "1200"
"""How long Google may write an answer: what it recommends for long ones. `idle_timeout` limits its pauses."""


class GoogleModel:
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
        self._base = httpx2.URL(endpoint.base_url)
        headers = httpx2.Headers({**STREAM_HEADERS, "x-server-timeout": _ANSWER_SECONDS})
        if endpoint.api_key:
            headers["x-goog-api-key"] = endpoint.api_key
        headers.update(self._parameters.headers)
        self.answers = AnswerEndpoint(
            client,
            self._url_of(endpoint.model),
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
        """Older models can't combine it with tools."""
        names = models or [self.name]
        return not with_tools and all(traits_of(name).has_native_output for name in names)

    def stream(self, request: ModelRequest) -> Answer:
        model, address = request.options.upstream_model or self.name, self._endpoint.base_url
        body = google_request(request, model, address, self._parameters, self._encoded)
        return self.answers.answer(
            partial(self.answers.open, body, url=self._url_of(model)),
            GoogleStream(new_call_id, address, model),
        )

    def _url_of(self, model: str) -> httpx2.URL:
        """The address of a model. Its name may have the prefix `models/` or `tunedModels/`."""
        path = self._base.path.rstrip("/").removesuffix(_VERSION) + _VERSION
        name = model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"
        raw_path = f"{path}/{quote(name)}:streamGenerateContent?alt=sse"
        return self._base.copy_with(raw_path=raw_path.encode())
