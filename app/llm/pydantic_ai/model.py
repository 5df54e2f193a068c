"""Models of every other provider, over pydantic-ai's direct API; never its agent loop.

Importing this imports pydantic-ai, which takes most of a second: `catalog.py` does so by name, and only
when a model needs it. An SDK is imported by pydantic-ai when its provider is first asked for.
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
from dataclasses import replace
from functools import lru_cache
from typing import Any

import httpx2
from pydantic_ai import exceptions as sdk
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import (
    Model,
    StreamedResponse,
    create_async_httpx2_client,
    infer_model,
)
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings

from app.clock import new_id
from app.domain.errors import ConfigurationError
from app.domain.inference.options import NO_OPTIONS
from app.domain.threads.media_placeholders import without_media
from app.llm.failures import presentable, secrets_of
from app.llm.openai.tool_call_assembly import ToolCallAssembly
from app.llm.pydantic_ai.answers import chunks_of, failure, stop_reason, usage
from app.llm.pydantic_ai.messages import history_of, parameters_of
from app.llm.pydantic_ai.settings import accepted_by, settings_of
from app.runtime.ports import ModelChunk, ModelFinished, ModelRequest

_LEFT_OPEN = frozenset({"google", "google-cloud"})
"""Providers whose SDK keeps a stream's socket open, and the answer coming, when its stream is left."""

MOST_UPSTREAM = 64
"""Models of one provider that are kept built: runs may name any."""

_NOT_TAKEN = (NotImplementedError, RuntimeError, sdk.UserError)
"""How pydantic-ai says, before it asks, that a provider takes no media of some kind."""

_responses: ContextVar[list[httpx2.Response]] = ContextVar("responses")


class PydanticAIModel:
    """One model of one provider. `client` is the one that we made for it, if we did."""

    def __init__(
        self,
        model: Model,
        provider: Provider[Any],
        client: httpx2.AsyncClient | None,
        settings: ModelSettings,
        secrets: Sequence[str],
        upstream: Callable[[str], Model],
    ) -> None:
        self._model = model
        self._provider = provider
        self._client = client
        self._settings = settings
        self._secrets = secrets
        self._upstream = upstream

    @property
    def name(self) -> str:
        return self._model.model_name

    async def aclose(self) -> None:
        async with self._provider:
            pass  # leaving its context is how a provider closes the client that it made
        if self._client is not None:
            await self._client.aclose()

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[AsyncIterator[Sequence[ModelChunk]]]:
        async with AsyncExitStack() as stack, _closing_responses():
            with self._failures(begun=False):
                try:
                    response = await stack.enter_async_context(self._opened(request))
                except _NOT_TAKEN:
                    in_words = without_media(request.messages)
                    if in_words == request.messages:
                        raise
                    named = replace(request, messages=in_words)
                    response = await stack.enter_async_context(self._opened(named))
            yield await stack.enter_async_context(aclosing(self._chunks(response)))

    def _opened(self, request: ModelRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        model = self._model_for(request)
        return model_request_stream(
            model,
            history_of(request.messages),
            model_settings=self._settings_for(request, model),
            model_request_parameters=parameters_of(request),
        )

    def _model_for(self, request: ModelRequest) -> Model:
        name = request.options.upstream_model
        return self._model if name in (None, self.name) else self._upstream(name)

    def _settings_for(self, request: ModelRequest, model: Model) -> ModelSettings:
        if request.options == NO_OPTIONS:
            return self._settings
        return accepted_by(model, {**self._settings, **settings_of(request.options, model.system)})

    async def _chunks(self, response: StreamedResponse) -> AsyncGenerator[Sequence[ModelChunk]]:
        calls = ToolCallAssembly(_new_call_id)
        with self._failures(begun=True):
            async for event in response:
                if chunks := chunks_of(event, calls):
                    yield chunks
            yield [*calls.open_all(), ModelFinished(stop_reason(response, calls), usage(response))]

    @contextmanager
    def _failures(self, *, begun: bool) -> Iterator[None]:
        try:
            yield
        except (sdk.AgentRunError, sdk.UserError, httpx2.HTTPError) as error:
            # `from None`: the SDK's own errors quote what the server said, and that may be the key.
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
    """A model that pydantic-ai knows as `provider_name:model_name`."""
    try:
        provider_class = infer_provider_class(provider_name)
    except ValueError:
        raise ConfigurationError(f"provider {provider_name!r} is unknown") from None
    except ImportError as error:
        raise ConfigurationError(f"provider {provider_name!r} isn't installed: {error}") from None
    client = _closing_client() if provider_name in _LEFT_OPEN else None
    arguments = {"api_key": api_key, "base_url": base_url, "http_client": client}

    @lru_cache(maxsize=MOST_UPSTREAM)
    def upstream(name: str) -> Model:
        return infer_model(f"{provider_name}:{name}", lambda _: provider)

    try:
        provider = provider_class(**_accepted(provider_class, arguments))
        model = upstream(model_name)
    except (ImportError, ValueError, sdk.UserError) as error:
        raise ConfigurationError(f"provider {provider_name!r} can't be used: {error}") from None
    settings: dict[str, Any] = {
        **options,
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
    )


def _accepted(provider_class: type[Provider[Any]], arguments: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in arguments.items() if value is not None}
    known = inspect.signature(provider_class.__init__).parameters
    for key in given:
        if key not in known:
            raise ConfigurationError(f"{provider_class.__name__} takes no {key}: leave it out")
    return given


def _closing_client() -> httpx2.AsyncClient:
    client = create_async_httpx2_client()
    client.event_hooks = {**client.event_hooks, "response": [_remember]}
    return client


async def _remember(response: httpx2.Response) -> None:
    _responses.get().append(response)


@asynccontextmanager
async def _closing_responses() -> AsyncIterator[None]:
    """Closes the responses of this task that `_LEFT_OPEN` providers would leave to themselves."""
    responses: list[httpx2.Response] = []
    _responses.set(responses)
    try:
        yield
    finally:
        while responses:
            await responses.pop().aclose()


def _new_call_id() -> str:
    return f"call_{new_id()}"
