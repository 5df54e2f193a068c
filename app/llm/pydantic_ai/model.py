"""Models of all other providers, over pydantic-ai's direct API. Its agent loop is not used.

Importing this module imports pydantic-ai, which takes most of a second. So `catalog.py` imports it by name,
when a model needs it. pydantic-ai imports an SDK when its provider is first used.
"""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
)
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import httpx2
from pydantic_ai import exceptions as sdk
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import PartStartEvent
from pydantic_ai.models import (
    Model,
    StreamedResponse,
    create_async_httpx2_client,
    infer_model,
)
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings

from app.domain.errors import ConfigurationError
from app.domain.inference.options import NO_OPTIONS
from app.domain.structs import replace
from app.domain.threads.media_placeholders import without_media
from app.llm.call_ids import new_call_id
from app.llm.failures import presentable, secrets_of
from app.llm.openai.tool_call_assembly import ToolCallAssembly
from app.llm.pydantic_ai.answers import chunks_of, failure, stop_reason, usage
from app.llm.pydantic_ai.messages import history_of, parameters_of
from app.llm.pydantic_ai.native_tools import OPTION, native_tools_of
from app.llm.pydantic_ai.provider_data import StreamedParts
from app.llm.pydantic_ai.settings import accepted_by, settings_of, tool_choice_of
from app.runtime.ports.models import ModelChunk, ModelFinished, ModelRequest, UsageSoFar

_LEAKING_PROVIDERS = frozenset({"google", "google-cloud"})
"""Providers whose SDK leaves a stream's socket open, and receiving, after the stream is closed."""

_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    # OpenAI stores no answers: the thread's log has them.
    "openai-responses": {"openai_store": False},
    # Anthropic caches the beginning of a prompt only up to a marker.
    "anthropic": {
        "anthropic_cache_instructions": True,
        "anthropic_cache_tool_definitions": True,
        "anthropic_cache_messages": True,
    },
}
"""Settings that a model's own options override."""

MAX_UPSTREAM_MODELS = 64
"""Maximum number of built models per provider. Runs may name any model."""

_UNSUPPORTED_MEDIA_ERRORS = (NotImplementedError, RuntimeError, sdk.UserError)
"""pydantic-ai raises these before the request if a provider doesn't accept a kind of media."""

_responses: ContextVar[list[httpx2.Response]] = ContextVar("responses")


class PydanticAIModel:
    """One model of one provider. `client` is the HTTP client that we made for it, if any."""

    def __init__(
        self,
        model: Model,
        provider: Provider[Any],
        client: httpx2.AsyncClient | None,
        settings: ModelSettings,
        secrets: Sequence[str],
        upstream: Callable[[str], Model],
        native_tools: Sequence[AbstractNativeTool],
    ) -> None:
        self._model = model
        self._provider = provider
        self._client = client
        self._settings = settings
        self._secrets = secrets
        self._upstream = upstream
        self._native_tools = native_tools

    @property
    def name(self) -> str:
        return self._model.model_name

    async def aclose(self) -> None:
        async with self._provider:
            pass  # a provider closes its own client when its context ends
        if self._client is not None:
            await self._client.aclose()

    def has_native_output(self, *, with_tools: bool, models: Sequence[str] = ()) -> bool:
        """Google's older models can't combine it with tools."""
        if with_tools and self._model.system.startswith("google"):
            return False
        return all(
            bool(self._upstream(name).profile.get("supports_json_schema_output", False))
            for name in models or [self.name]
        )

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[AsyncIterator[Sequence[ModelChunk]]]:
        async with AsyncExitStack() as stack, _closing_responses():
            with self._failures(begun=False):
                try:
                    response = await stack.enter_async_context(self._open_stream(request))
                except _UNSUPPORTED_MEDIA_ERRORS:
                    without_attachments = without_media(request.messages)
                    if without_attachments == request.messages:
                        raise
                    text_only = replace(request, messages=without_attachments)
                    response = await stack.enter_async_context(self._open_stream(text_only))
            name = request.options.upstream_model or self.name
            yield await stack.enter_async_context(aclosing(self._chunks(response, name)))

    def _open_stream(self, request: ModelRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        model = self._model_for(request)
        return model_request_stream(
            model,
            history_of(request.messages, model),
            model_settings=self._settings_for(request, model),
            model_request_parameters=parameters_of(request, self._native_tools),
        )

    def _model_for(self, request: ModelRequest) -> Model:
        name = request.options.upstream_model
        return self._model if name in (None, self.name) else self._upstream(name)

    def _settings_for(self, request: ModelRequest, model: Model) -> ModelSettings:
        if request.options == NO_OPTIONS and request.tool_choice is None:
            return self._settings
        settings = {**self._settings, **settings_of(request.options, model.system)}
        if request.tool_choice is not None:
            settings["tool_choice"] = tool_choice_of(request.tool_choice)
        return accepted_by(model, settings)

    async def _chunks(
        self, response: StreamedResponse, model: str
    ) -> AsyncGenerator[Sequence[ModelChunk]]:
        calls = ToolCallAssembly(new_call_id)
        parts = StreamedParts(model, calls)
        with self._failures(begun=True):
            is_reported = False
            async for event in response:
                chunks = chunks_of(event, calls)
                if not is_reported and response.usage.input_tokens and (so_far := usage(response)):
                    # Some providers report the prompt's tokens first, and bill them also without an answer.
                    is_reported, chunks = True, [*chunks, UsageSoFar(so_far)]
                if isinstance(event, PartStartEvent) and event.index:
                    chunks = [*chunks, *parts.complete(response, is_whole=False)]
                    chunks = [*chunks, *parts.citations(response)]
                if chunks:
                    yield chunks
            finished = ModelFinished(stop_reason(response, calls), usage(response))
            opened = [*calls.open_all()]
            whole = parts.complete(response, is_whole=True)
            yield [*opened, *whole, *parts.citations(response), finished]

    @contextmanager
    def _failures(self, *, begun: bool) -> Iterator[None]:
        try:
            yield
        except (sdk.AgentRunError, sdk.UserError, httpx2.HTTPError) as error:
            # `from None`: the SDK's own errors quote the server's text, which may contain the key.
            raise presentable(failure(error, begun), self._secrets) from None


def build_model(
    provider_name: str,
    model_name: str,
    *,
    api_key: str | None,
    base_url: str | None,
    headers: Mapping[str, str],
    timeout: float,
    idle_timeout: float,
    options: Mapping[str, Any],
) -> PydanticAIModel:
    """Build the model that pydantic-ai knows as `provider_name:model_name`."""
    try:
        provider_class = infer_provider_class(provider_name)
    except ValueError:
        raise ConfigurationError(f"provider {provider_name!r} is unknown") from None
    except ImportError as error:
        raise ConfigurationError(f"provider {provider_name!r} isn't installed: {error}") from None
    client = _closing_client() if provider_name in _LEAKING_PROVIDERS else None
    arguments = {"api_key": api_key, "base_url": base_url, "http_client": client}

    @lru_cache(maxsize=MAX_UPSTREAM_MODELS)
    def upstream(name: str) -> Model:
        return infer_model(f"{provider_name}:{name}", lambda _: provider)

    try:
        provider = provider_class(**_accepted_arguments(provider_class, arguments))
        model = upstream(model_name)
    except (ImportError, ValueError, sdk.UserError) as error:
        raise ConfigurationError(f"provider {provider_name!r} can't be used: {error}") from None
    settings: dict[str, Any] = {
        **_defaults_of(provider_name, options),
        **{name: value for name, value in options.items() if name != OPTION},
        "timeout": idle_timeout,
        "first_event_timeout": timeout,
        "max_retries": 0,
    }
    if headers:
        settings["extra_headers"] = dict(headers)
    return PydanticAIModel(
        model,
        provider,
        client,
        accepted_by(model, settings),
        secrets_of(api_key, headers),
        upstream,
        native_tools_of(options[OPTION], model) if OPTION in options else (),
    )


def _defaults_of(provider_name: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The default settings. Options about Anthropic's cache replace all of its markers."""
    if provider_name == "anthropic" and any("cache" in name for name in options):
        return {}
    return _DEFAULTS.get(provider_name, {})


def _accepted_arguments(
    provider_class: type[Provider[Any]], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    given = {key: value for key, value in arguments.items() if value is not None}
    known = inspect.signature(provider_class.__init__).parameters
    for key in given:
        if key not in known:
            raise ConfigurationError(f"{provider_class.__name__} takes no {key}: leave it out")
    return given


def _closing_client() -> httpx2.AsyncClient:
    client = create_async_httpx2_client()
    client.event_hooks = {**client.event_hooks, "response": [_record_response]}
    return client


async def _record_response(response: httpx2.Response) -> None:
    _responses.get().append(response)


@asynccontextmanager
async def _closing_responses() -> AsyncIterator[None]:
    """Closes the responses of this task that `_LEFT_OPEN` providers leave open."""
    responses: list[httpx2.Response] = []
    _responses.set(responses)
    try:
        yield
    finally:
        while responses:
            await responses.pop().aclose()
