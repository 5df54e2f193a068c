"""InferenceOptions as parameters of OpenAI-compatible APIs, whose names differ between servers."""

from collections.abc import Mapping
from typing import Any

import httpx2
from msgspec import Struct

from app.domain.inference.options import InferenceOptions, ThinkingBudget, nearest_effort

_OPENAI_HOSTS = (".openai.com", ".azure.com")
_OPENROUTER = ".openrouter.ai"
_LIMIT_KEYS = ("max_completion_tokens", "max_tokens")


class Dialect(Struct, frozen=True):
    """How a server names its parameters. OpenAI refuses `max_tokens`; many other servers accept only that."""

    limit_key: str = "max_tokens"
    highest_effort: str = "high"
    takes_budgets: bool = False
    keeps_to_schemas: bool = False
    """Whether it writes structured output natively, together with tools."""


def dialect_of(base_url: str, parameters: Mapping[str, Any]) -> Dialect:
    """The dialect of the server at this address. A limit among the configured parameters shows its key."""
    host = "." + httpx2.URL(base_url).host
    is_openai = host.endswith(_OPENAI_HOSTS)
    usual = _LIMIT_KEYS[0] if is_openai else _LIMIT_KEYS[1]
    return Dialect(
        limit_key=next((key for key in _LIMIT_KEYS if key in parameters), usual),
        highest_effort="xhigh" if is_openai else "high",
        takes_budgets=host.endswith(_OPENROUTER),
        keeps_to_schemas=is_openai,
    )


def parameters_of(options: InferenceOptions, dialect: Dialect) -> dict[str, Any]:
    """The options that are set, without the model's name."""
    sampling = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        dialect.limit_key: options.max_tokens,
    }
    set_options: dict[str, Any] = {
        key: value for key, value in sampling.items() if value is not None
    }
    effort = options.reasoning_effort
    if isinstance(effort, ThinkingBudget):
        if dialect.takes_budgets:
            return {**set_options, "reasoning": {"max_tokens": effort.tokens}}
        effort = nearest_effort(effort)
    if effort is not None:
        set_options["reasoning_effort"] = dialect.highest_effort if effort == "max" else effort
    return set_options
