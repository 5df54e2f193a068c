"""Limits of a run, as its caller asks for them and reads them."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from app.agents.file_schema import MAX_SECONDS
from app.api.schemas.common import RequestModel, ResponseModel
from app.domain.json_values import JsonObject
from app.domain.runs.limits import OnLimit, limits_in_request, limits_of, limits_to_json, used_by
from app.domain.runs.runs import RunRecord
from app.domain.tickets.limit_tickets import MAX_AMOUNT

Count = Annotated[int, Field(ge=1, le=MAX_AMOUNT, strict=True)]


class LimitsIn(RequestModel):
    """How much a run may use, over all that happens to it. What isn't named has no limit."""

    steps: Count | None = Field(None, description="Inferences, with the calls that they ask for.")
    tokens: Count | None = Field(None, description="Of input and output, as the provider counts.")
    tool_calls: Count | None = Field(
        None, description="Calls that go to a tool, each counted once; calls over it aren't run."
    )
    wall_seconds: float | None = Field(
        None,
        ge=0.001,
        le=MAX_SECONDS,
        description="Seconds that a worker executes it; waiting for people is free.",
    )


class LimitedRequest(RequestModel):
    """A request that may start a run, which may be given limits."""

    limits: LimitsIn | None = None
    on_limit: OnLimit | None = Field(
        None,
        description="At a limit: `stop` (the default) ends the run; `ask` lets it wait, at no cost, for "
        "somebody to raise the limit or to end it.",
    )

    @model_validator(mode="after")
    def _something_to_ask_about(self) -> Self:
        if self.on_limit is not None and not self.requested_limits:
            raise ValueError("`on_limit` says what happens at a limit: name one in `limits`")
        return self

    @property
    def requested_limits(self) -> dict[str, Any]:
        return {} if self.limits is None else self.limits.model_dump(exclude_none=True)

    def wanted_limits(self) -> JsonObject:
        """As a run's request keeps them."""
        return limits_in_request(self.requested_limits, self.on_limit or OnLimit.STOP)


class RunLimitsOut(ResponseModel):
    """What the run may use by now: as it was started with, or as people have raised it since."""

    steps: int | None
    tokens: int | None
    tool_calls: int | None
    wall_seconds: float | None
    on_limit: OnLimit


class UsedOut(ResponseModel):
    """What the run has used, as of its last checkpoint."""

    steps: int
    tokens: int
    tool_calls: int
    wall_seconds: float


def run_limits_out(record: RunRecord) -> RunLimitsOut | None:
    limits = limits_of(record)
    if not limits.asked:
        return None
    known: dict[str, Any] = {name: None for name in LimitsIn.model_fields}
    return RunLimitsOut(**{**known, **limits_to_json(limits)}, on_limit=limits.on_limit)


def used_out(record: RunRecord) -> UsedOut:
    used = used_by(record)
    return UsedOut(
        steps=used.steps,
        tokens=used.tokens,
        tool_calls=used.tool_calls,
        wall_seconds=round(used.wall_seconds, 3),
    )
