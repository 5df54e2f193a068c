"""Limits of a run, what it has used, and what providers bill."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from app.agents.file_schema import MAX_SECONDS
from app.api.schemas.common import RequestModel, ResponseModel
from app.domain.json_values import JsonObject
from app.domain.runs.limits import OnLimit, limits_in_request, limits_of, limits_to_json
from app.domain.runs.runs import RunRecord
from app.domain.tickets.limit_tickets import MAX_AMOUNT

Count = Annotated[int, Field(ge=1, le=MAX_AMOUNT, strict=True)]


class LimitsIn(RequestModel):
    """How much a run may use in total, over all its activations. Absent fields are unlimited."""

    steps: Count | None = Field(
        None, description="Maximum number of steps: one model call each, with its tool calls."
    )
    tokens: Count | None = Field(
        None, description="Maximum number of input and output tokens, as the provider counts them."
    )
    tool_calls: Count | None = Field(
        None, description="Maximum number of tool calls. Further calls aren't executed."
    )
    wall_seconds: float | None = Field(
        None,
        ge=0.001,
        le=MAX_SECONDS,
        description="Maximum seconds of execution. Waiting doesn't count.",
    )
    cost_usd: float | None = Field(
        None,
        ge=0.000001,
        le=1_000_000,
        description="Maximum cost of the requests to models, in US dollars. It is checked before each step. Every model "
        "that the run may ask needs a known price; otherwise 422 `price_unknown`.",
    )


class LimitedRequest(RequestModel):
    """A request that may start a run with limits."""

    limits: LimitsIn | None = None
    on_limit: OnLimit | None = Field(
        None,
        description="At a limit, `stop` (the default) ends the run, and `ask` opens a ticket to raise the "
        "limit or end the run.",
    )

    @model_validator(mode="after")
    def _on_limit_needs_limits(self) -> Self:
        if self.on_limit is not None and not self.requested_limits:
            raise ValueError("`on_limit` needs at least one limit in `limits`")
        return self

    @property
    def requested_limits(self) -> dict[str, Any]:
        return {} if self.limits is None else self.limits.model_dump(exclude_none=True)

    def wanted_limits(self) -> JsonObject:
        """The limits as stored in the run's request."""
        return limits_in_request(self.requested_limits, self.on_limit or OnLimit.STOP)


class RunLimitsOut(ResponseModel):
    """The current limits of the run, raises included; null means unlimited."""

    steps: int | None
    tokens: int | None
    tool_calls: int | None
    wall_seconds: float | None
    cost_usd: float | None
    on_limit: OnLimit


def _milliseconds(seconds: float) -> float:
    return round(seconds, 3)


class UsedOut(ResponseModel):
    """What the run has used, as of its last checkpoint."""

    steps: int
    tokens: int
    tool_calls: int
    wall_seconds: Annotated[float, AfterValidator(_milliseconds)]
    cost_usd: float = Field(
        description="Cost of the requests to models with a known price, in US dollars."
    )


class UsageTotalOut(ResponseModel):
    """The sum of some requests to models, as their providers bill them."""

    requests: int = Field(
        description="Number of requests, also failed ones for which the provider reported tokens."
    )
    input_tokens: int = Field(
        description="Tokens of prompts, with those read from the provider's cache and written to it."
    )
    output_tokens: int = Field(description="Generated tokens, with those of the model's reasoning.")
    cache_read_tokens: int = Field(description="Input tokens that the provider's cache had.")
    cache_write_tokens: int = Field(description="Input tokens written to the provider's cache.")
    reasoning_tokens: int = Field(
        description="Output tokens of the model's reasoning, as far as the provider reports them."
    )
    cost_usd: float | None = Field(
        description="Cost in US dollars of the requests with a known price; null if none has one."
    )
    unpriced_requests: int = Field(
        description="Number of requests to models without a known price."
    )


class ModelUsageOut(UsageTotalOut):
    """The usage of one model."""

    model: str = Field(description="The provider's name of the model.")
    provider: str = Field(description="The provider, as the agents file names it.")


class ThreadUsageOut(ResponseModel):
    """The usage of all runs of a thread."""

    thread_id: str
    usage_by_model: list[ModelUsageOut] = Field(description="One entry for each model.")


class UsageGroupOut(UsageTotalOut):
    """The usage of one group."""

    group: dict[str, str] = Field(
        description="The values that these requests share, by the names of `group_by`."
    )


def run_limits_out(record: RunRecord) -> RunLimitsOut | None:
    limits = limits_of(record)
    if not limits.requested:
        return None
    known: dict[str, Any] = {name: None for name in LimitsIn.model_fields}
    return RunLimitsOut(**{**known, **limits_to_json(limits)}, on_limit=limits.on_limit)
