"""Language models by the names that agents use. They are built on first use and closed together."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import httpx2

from app.domain.errors import ConfigurationError
from app.llm.encoded_messages import DEFAULT_BYTES, EncodedMessages
from app.llm.http.client import StreamingClient
from app.llm.http.endpoints import ModelEndpoint
from app.llm.openai.model import OpenAICompatibleModel
from app.llm.prices.model_prices import prices_of
from app.llm.prices.public_prices import PublicPrices
from app.llm.scripted.model import ScriptedModel
from app.llm.scripted.scripts import SCRIPTS
from app.llm.specs import (
    ANTHROPIC,
    BASE_URLS,
    GOOGLE,
    OPENAI_BASE_URL,
    OPENAI_COMPATIBLE,
    OWN_ADAPTERS,
    SCRIPTED,
    ModelSpec,
)
from app.llm.with_breaker import Breakers, ModelWithBreaker
from app.runtime.ports.models import LanguageModel
from app.runtime.ports.prices import NO_PRICES, Prices

_KEYS_IN_ENVIRONMENT: Mapping[str, Sequence[str]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "openai-responses": ("OPENAI_API_KEY",),
}
KEY_VARIABLES = tuple(
    dict.fromkeys(
        ["OPENAI_API_KEY", *(key for keys in _KEYS_IN_ENVIRONMENT.values() for key in keys)]
    )
)
"""The environment variables of the providers' keys, for models that name none."""
_ANY_PROVIDER = "pydantic-ai"
_OPTIONAL_PACKAGES: Mapping[str, tuple[str, str]] = {
    "google-cloud": ("google-cloud", "google.genai"),
}
"""Of providers: Holdfast's optional dependency, and the module that it installs."""


_OWN_MODELS: Mapping[str, tuple[str, str]] = {
    ANTHROPIC: ("app.llm.anthropic.model", "AnthropicModel"),
    GOOGLE: ("app.llm.google.model", "GoogleModel"),
}
"""Of providers with an adapter of our own: its module and class."""


class _BuildOwnModel(Protocol):
    def __call__(
        self, endpoint: ModelEndpoint, client: StreamingClient, *, encoded: EncodedMessages
    ) -> LanguageModel: ...


class _ClosableModel(LanguageModel, Protocol):
    async def aclose(self) -> None: ...


class ModelCatalog:
    """All models that the configuration names.

    `model` builds a model. Call it at start for each model that an agent uses: a missing key then fails the
    start, and the slow import of an SDK doesn't delay the first run.
    """

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        environ: Mapping[str, str],
        *,
        encoded_messages_bytes: int = DEFAULT_BYTES,
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._environ = environ
        self._encoded = EncodedMessages(encoded_messages_bytes)
        self._models: dict[str, LanguageModel] = {}
        self._with_breaker: dict[str, LanguageModel] = {}
        self._breakers = Breakers()
        self._public_prices = PublicPrices()
        self._prices: dict[str, Prices] = {}
        self._client: StreamingClient | None = None
        self._open = AsyncExitStack()

    @property
    def specs(self) -> Sequence[ModelSpec]:
        return tuple(self._specs.values())

    def model(self, name: str) -> LanguageModel:
        """Return the model of that name. Raises `ConfigurationError` if it doesn't exist or can't work."""
        if name not in self._models:
            spec = self._specs.get(name)
            if spec is None:
                known = ", ".join(self._specs) or "none"
                raise ConfigurationError(
                    f"model {name!r} isn't configured (there are: {known}); add [models.{name}]"
                )
            self._models[name] = self._build(spec)
        return self._models[name]

    def with_breaker(self, name: str) -> LanguageModel:
        """Wrap the model in the circuit breaker that all runs of this process share."""
        model = self.model(name)
        if name not in self._with_breaker:
            spec = self._specs.get(name)
            endpoint = name if spec is None else spec.base_url or spec.provider
            self._with_breaker[name] = ModelWithBreaker(model, endpoint, self._breakers)
        return self._with_breaker[name]

    def prices(self, name: str) -> Prices:
        """The prices of the model of that name."""
        if name not in self._prices:
            spec = self._specs.get(name)
            if spec is None:
                return NO_PRICES
            self._prices[name] = prices_of(spec, self.specs, self._public_prices)
        return self._prices[name]

    async def load_prices(self) -> None:
        """Load the public price list, if a configured model may be in it."""
        for spec in self.specs:
            if spec.price is None:
                await self.prices(spec.name).load()

    def problem(self, name: str) -> str | None:
        """Return why this model can't work, or None. Doesn't call the model."""
        try:
            self.model(name)
        except ConfigurationError as error:
            return str(error)
        return None

    async def aclose(self) -> None:
        """Close every connection. Models that are still streaming fail as interrupted."""
        self._models.clear()
        self._with_breaker.clear()
        self._client = None
        await self._open.aclose()

    def _build(self, spec: ModelSpec) -> LanguageModel:
        problem = problem_of(spec, self._environ)
        if problem is not None:
            raise ConfigurationError(problem)
        if spec.provider == SCRIPTED:
            return _scripted(spec)
        if spec.provider in OPENAI_COMPATIBLE:
            endpoint = self._endpoint(spec, OPENAI_BASE_URL)
            return OpenAICompatibleModel(endpoint, self._shared_client(), encoded=self._encoded)
        if spec.provider in _OWN_MODELS:
            return self._own_model(spec)
        return self._pydantic_ai_model(spec)

    def _own_model(self, spec: ModelSpec) -> LanguageModel:
        module, name = _OWN_MODELS[spec.provider]
        # By name, so that a server imports the adapters that its models need.
        build: _BuildOwnModel = getattr(import_module(module), name)
        try:
            endpoint = self._endpoint(spec, BASE_URLS[spec.provider])
            return build(endpoint, self._shared_client(), encoded=self._encoded)
        except ConfigurationError as error:
            raise ConfigurationError(f"[models.{spec.name}] {error}") from None

    def _shared_client(self) -> StreamingClient:
        if self._client is None:
            self._client = StreamingClient()
            self._open.push_async_callback(self._client.aclose)
        return self._client

    def _endpoint(self, spec: ModelSpec, address: str) -> ModelEndpoint:
        return ModelEndpoint(
            base_url=spec.base_url or address,
            model=spec.model,
            api_key=api_key_of(spec, self._environ),
            headers=spec.headers,
            timeout=spec.timeout,
            idle_timeout=spec.idle_timeout,
            options=spec.options,
        )

    def _pydantic_ai_model(self, spec: ModelSpec) -> LanguageModel:
        provider, model = spec.provider, spec.model
        if provider == _ANY_PROVIDER:
            provider, _, model = model.partition(":")
        # By name, because importing it imports pydantic-ai.
        build_model = import_module("app.llm.pydantic_ai.model").build_model
        try:
            built: _ClosableModel = build_model(
                provider,
                model,
                api_key=api_key_of(spec, self._environ),
                base_url=spec.base_url,
                headers=spec.headers,
                timeout=spec.timeout,
                idle_timeout=spec.idle_timeout,
                options=spec.options,
            )
        except ConfigurationError as error:
            raise ConfigurationError(f"[models.{spec.name}] {error}") from None
        self._open.push_async_callback(built.aclose)
        return built


def api_key_of(spec: ModelSpec, environ: Mapping[str, str]) -> str | None:
    """The API key for this model. OpenAI's own key is sent to OpenAI only."""
    if spec.api_key:
        return spec.api_key
    for name in _key_names(spec):
        if key := environ.get(name, "").strip():
            return key
    return None


def problem_of(spec: ModelSpec, environ: Mapping[str, str]) -> str | None:
    """Return what is missing or wrong in a spec, with the remedy. Builds nothing."""
    where = f"[models.{spec.name}]"
    if spec.provider == SCRIPTED:
        return _problem_of_script(where, spec.options)
    if (missing := _missing_packages(spec.provider)) is not None:
        return f"{where} needs packages that aren't installed: run `holdfast install --provider {missing}`"
    if spec.base_url is not None and not _is_url(spec.base_url):
        return f"{where} base_url {spec.base_url!r} isn't an http(s) address"
    if spec.provider == _ANY_PROVIDER and ":" not in spec.model:
        return f'{where} model must be "provider:model" when the provider is "{_ANY_PROVIDER}"'
    if spec.provider in OPENAI_COMPATIBLE and "native_tools" in spec.options:
        return f'{where} options.native_tools needs another provider, such as "openai-responses"'
    names = _key_names(spec)
    key = api_key_of(spec, environ)
    for value in (key or "", *spec.headers.values()):
        if not (value.isascii() and value.isprintable()):
            return f"{where} has an API key or a header with characters that HTTP can't carry"
    if names and key is None:
        return (
            f"{where} has no API key: set {' or '.join(names)} in the environment, "
            "or name another variable with api_key_env"
        )
    return None


def _missing_packages(provider: str) -> str | None:
    """The optional dependency of Holdfast that has the provider's packages, if they aren't installed."""
    if provider in OWN_ADAPTERS:
        return None
    name, sdk = _OPTIONAL_PACKAGES.get(provider, ("openai", "pydantic_ai"))
    return None if all(_is_installed(each) for each in ("pydantic_ai", sdk)) else name


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a module in a package that is missing
        return False


def _key_names(spec: ModelSpec) -> Sequence[str]:
    """The environment variables that may hold this model's key; empty if it may work without one."""
    if spec.api_key_env:
        return (spec.api_key_env,)
    if spec.provider in OPENAI_COMPATIBLE:
        return () if spec.base_url else ("OPENAI_API_KEY",)
    return _KEYS_IN_ENVIRONMENT.get(spec.provider, ())


def _is_url(text: str) -> bool:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        return False
    return url.scheme in ("http", "https") and bool(url.host)


def _scripted(spec: ModelSpec) -> LanguageModel:
    script = SCRIPTS[spec.options.get("script", "demo")]
    delay = spec.options.get("delay_ms", 0) / 1000
    return ScriptedModel(spec.model or spec.name, script, delay=delay)


def _problem_of_script(where: str, options: Mapping[str, Any]) -> str | None:
    script, delay = options.get("script", "demo"), options.get("delay_ms", 0)
    if script not in SCRIPTS:
        return f"{where} script {script!r} isn't one of {', '.join(SCRIPTS)}"
    if isinstance(delay, bool) or not isinstance(delay, int | float) or delay < 0:
        return f"{where} delay_ms must be a number of milliseconds"
    return None
