"""Model options that a client may override for a run."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from app.api.schemas.common import RequestModel, Str
from app.domain.inference.options import EffortName, InferenceOptions, ThinkingBudget

_MAX_TOKENS = 2**31 - 1


_NAME = re.compile(r"\w[\w.:/@+~-]*")


def _name(name: str) -> str:
    """Some providers put the name into a URL path, so it must not contain other path parts."""
    if not name.strip():
        raise ValueError("must not be blank")
    if not _NAME.fullmatch(name) or ".." in name:
        raise ValueError(
            "must be the provider's name of a model: letters, digits and . : / @ + ~ - _"
        )
    return name


ModelName = Annotated[Str, Field(max_length=200), AfterValidator(_name)]
Tokens = Annotated[int, Field(strict=True, ge=1, le=_MAX_TOKENS)]


class ThinkingBudgetIn(RequestModel):
    """A reasoning budget in tokens."""

    budget: Tokens = Field(description="Maximum number of reasoning tokens.")


class OverridesIn(RequestModel):
    """Overrides of model options. The agent's options apply to absent fields."""

    upstream_model: ModelName | None = Field(
        None, description="Model to use instead of the agent's, by the provider's name."
    )
    fallback_upstream_models: list[ModelName] | None = Field(
        None,
        max_length=10,
        description="Models to try in this order if the first one fails. They replace the agent's.",
    )
    temperature: Annotated[float, Field(strict=True, ge=0, le=2)] | None = None
    max_tokens: Tokens | None = None
    top_p: Annotated[float, Field(strict=True, gt=0, le=1)] | None = None
    reasoning_effort: EffortName | ThinkingBudgetIn | None = None

    def to_domain(self) -> InferenceOptions:
        effort, fallbacks = self.reasoning_effort, self.fallback_upstream_models
        return InferenceOptions(
            upstream_model=self.upstream_model,
            fallback_upstream_models=None if fallbacks is None else tuple(fallbacks),
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            top_p=self.top_p,
            reasoning_effort=ThinkingBudget(effort.budget)
            if isinstance(effort, ThinkingBudgetIn)
            else effort,
        )
