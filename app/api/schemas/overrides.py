"""How a run's model is asked, as a client may override it."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from app.api.schemas.common import RequestModel, Str
from app.domain.inference.options import EffortName, InferenceOptions, ThinkingBudget

_MOST_TOKENS = 2**31 - 1


_NAME = re.compile(r"\w[\w.:/@+~-]*")


def _name(name: str) -> str:
    """Some providers have it in the path of an address: it must not lead anywhere else."""
    if not name.strip():
        raise ValueError("must not be blank")
    if not _NAME.fullmatch(name) or ".." in name:
        raise ValueError(
            "must be the provider's name of a model: letters, digits and . : / @ + ~ - _"
        )
    return name


ModelName = Annotated[Str, Field(max_length=200), AfterValidator(_name)]
Tokens = Annotated[int, Field(strict=True, ge=1, le=_MOST_TOKENS)]


class ThinkingBudgetIn(RequestModel):
    budget: Tokens = Field(description="Tokens to think with.")


class OverridesIn(RequestModel):
    """What is absent is left to the agent."""

    upstream_model: ModelName | None = Field(
        None, description="The provider's own name of a model, asked instead of the agent's."
    )
    fallback_upstream_models: list[ModelName] | None = Field(
        None,
        max_length=10,
        description="Asked in this order when the model fails; they replace the agent's.",
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
