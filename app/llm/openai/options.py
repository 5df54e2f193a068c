"""InferenceOptions as parameters of the OpenAI-compatible wire, which its servers spell differently."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from app.domain.inference.options import InferenceOptions, ThinkingBudget, nearest_effort

_OPENAI_HOSTS = (".openai.com", ".azure.com")
_OPENROUTER = ".openrouter.ai"
_LIMIT_KEYS = ("max_completion_tokens", "max_tokens")


@dataclass(frozen=True, slots=True)
class Dialect:
    """OpenAI's own models refuse `max_tokens`; many other servers know nothing else."""

    limit_key: str = "max_tokens"
    highest_effort: str = "high"
    takes_budgets: bool = False


def dialect_of(base_url: str, parameters: Mapping[str, Any]) -> Dialect:
    """What the server behind this address understands; a limit among its parameters shows its key."""
    host = "." + httpx2.URL(base_url).host
    is_openai = host.endswith(_OPENAI_HOSTS)
    usual = _LIMIT_KEYS[0] if is_openai else _LIMIT_KEYS[1]
    return Dialect(
        limit_key=next((key for key in _LIMIT_KEYS if key in parameters), usual),
        highest_effort="xhigh" if is_openai else "high",
        takes_budgets=host.endswith(_OPENROUTER),
    )


def parameters_of(options: InferenceOptions, dialect: Dialect) -> dict[str, Any]:
    """What was asked for; the model's name is another matter."""
    sampling = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        dialect.limit_key: options.max_tokens,
    }
    said: dict[str, Any] = {key: value for key, value in sampling.items() if value is not None}
    effort = options.reasoning_effort
    if isinstance(effort, ThinkingBudget):
        if dialect.takes_budgets:
            return {**said, "reasoning": {"max_tokens": effort.tokens}}
        effort = nearest_effort(effort)
    if effort is not None:
        said["reasoning_effort"] = dialect.highest_effort if effort == "max" else effort
    return said
