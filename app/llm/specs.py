"""The configured models, from agents.toml or from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from app.domain.errors import ConfigurationError
from app.domain.suggestions import without_unit
from app.llm.price_table import PriceTable, price_from_table

OPENAI_BASE_URL = "https://api.openai.com/v1"
DEFAULT_OPENAI_MODEL = "gpt-5.4-mini"
DEFAULT_ANTHROPIC_MODEL = "claude-sonnet-5-5"

OPENAI_COMPATIBLE = frozenset({"openai", "openai-compatible"})
ANTHROPIC = "anthropic"
GOOGLE = "google"
BASE_URLS: Mapping[str, str] = {
    ANTHROPIC: "https://api.anthropic.com",
    GOOGLE: "https://generativelanguage.googleapis.com",
}
OWN_ADAPTERS = OPENAI_COMPATIBLE | {ANTHROPIC, GOOGLE}
"""The providers that need no SDK."""
SCRIPTED = "scripted"

KNOWN_PROVIDERS = (
    "openai",
    "openai-compatible",
    "anthropic",
    "google",
    "scripted",
    "alibaba",
    "azure",
    "bedrock",
    "cerebras",
    "cohere",
    "deepseek",
    "fireworks",
    "github",
    "google-cloud",
    "groq",
    "heroku",
    "huggingface",
    "litellm",
    "mistral",
    "moonshotai",
    "nebius",
    "ollama",
    "openai-responses",
    "openrouter",
    "ovhcloud",
    "sambanova",
    "together",
    "vercel",
    "xai",
    "zai",
    "pydantic-ai",
)
"""With `pydantic-ai`, the model names a provider of its own: "provider:model"."""

_KEYS = frozenset(
    {
        "provider",
        "model",
        "base_url",
        "api_key",
        "api_key_env",
        "headers",
        "timeout",
        "idle_timeout",
        "options",
        "price",
    }
)
_SCRIPTED_KEYS = frozenset({"script", "delay_ms"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One model under the name that agents use.

    `options` are sent to the provider unchanged. For the scripted provider they choose the script and its
    speed.
    """

    name: str
    provider: str
    model: str = ""
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    api_key_env: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 60.0
    idle_timeout: float = 60.0
    options: Mapping[str, Any] = field(default_factory=dict)
    price: PriceTable | None = None


def spec_from_table(name: str, table: Mapping[str, Any]) -> ModelSpec:
    """Read the table `[models.NAME]` of agents.toml. Raises `ConfigurationError` that names the key."""
    where = f"[models.{name}]"
    provider = table.get("provider")
    if not isinstance(provider, str) or not provider:
        raise ConfigurationError(
            f'{where} needs a provider: "openai" for any OpenAI-compatible server, "anthropic", …'
        )
    if provider not in KNOWN_PROVIDERS:
        close = get_close_matches(provider, KNOWN_PROVIDERS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigurationError(
            f"{where} there is no provider {provider!r}; {hint}There are: {', '.join(KNOWN_PROVIDERS)}. For"
            ' another OpenAI-compatible server write provider = "openai" and its base_url'
        )
    own = _SCRIPTED_KEYS if provider == SCRIPTED else frozenset[str]()
    for key in sorted(table.keys() - _KEYS - own):
        close = get_close_matches(key, _KEYS | own, n=1)
        remedy = f"did you mean {close[0]!r}? Parameters" if close else "parameters"
        raise ConfigurationError(
            f"{where} has the key {key!r}, which no model has: {remedy} for the provider go into"
            f" [models.{name}.options]"
        )
    if provider != SCRIPTED and not table.get("model"):
        raise ConfigurationError(f"{where} needs a model: the provider's own name for it")
    return ModelSpec(
        name=name,
        provider=provider,
        model=_text(where, table, "model") or "",
        base_url=_text(where, table, "base_url"),
        api_key=_text(where, table, "api_key"),
        api_key_env=_text(where, table, "api_key_env"),
        headers=_headers(where, table),
        timeout=_seconds(where, table, "timeout"),
        idle_timeout=_seconds(where, table, "idle_timeout"),
        options={
            **_table(where, table, "options"),
            **{key: table[key] for key in own & set(table)},
        },
        price=_price(name, table),
    )


def specs_from_environment(environ: Mapping[str, str]) -> tuple[ModelSpec, ...]:
    """The models for which the environment has a key, under their usual names."""
    specs = []
    if environ.get("OPENAI_API_KEY"):
        specs.append(
            ModelSpec(
                name="openai",
                provider="openai",
                model=environ.get("HOLDFAST_OPENAI_MODEL") or DEFAULT_OPENAI_MODEL,
                base_url=environ.get("OPENAI_BASE_URL") or None,
                api_key_env="OPENAI_API_KEY",
            )
        )
    if environ.get("ANTHROPIC_API_KEY"):
        specs.append(
            ModelSpec(
                name="anthropic",
                provider="anthropic",
                model=environ.get("HOLDFAST_ANTHROPIC_MODEL") or DEFAULT_ANTHROPIC_MODEL,
                api_key_env="ANTHROPIC_API_KEY",
            )
        )
    return tuple(specs)


def _text(where: str, table: Mapping[str, Any], key: str) -> str | None:
    value = table.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ConfigurationError(f"{where} {key} must be a string")
    return value.strip()


def _seconds(where: str, table: Mapping[str, Any], key: str) -> float:
    value = table.get(key, 120.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        hint = without_unit(value)
        remedy = "" if hint is None else f"; write {key} = {hint}"
        raise ConfigurationError(f"{where} {key} must be a number of seconds above 0{remedy}")
    return float(value)


def _table(where: str, table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{where} {key} must be a table")
    return value


def _price(name: str, table: Mapping[str, Any]) -> PriceTable | None:
    if "price" not in table:
        return None
    return price_from_table(f"[models.{name}.price]", _table(f"[models.{name}]", table, "price"))


def _headers(where: str, table: Mapping[str, Any]) -> Mapping[str, str]:
    headers = _table(where, table, "headers")
    for name, value in headers.items():
        if not isinstance(value, str):
            raise ConfigurationError(f"{where} headers: {name} must be a string")
    return headers
