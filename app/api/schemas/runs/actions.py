"""Requests that cancel, pause or retry a run, and the response to a decision."""

from pydantic import (
    Field,
)

from app.api.schemas.common import RequestModel, ResponseModel, Str
from app.api.schemas.limits import (
    LimitedRequest,
)
from app.api.schemas.runs.run import RunOut
from app.api.schemas.tickets import DecisionResultOut, TicketOut
from app.commands.runs.retry import VersionOfAgent


class DecidedOut(ResponseModel):
    """The results of the decisions, and the run after them."""

    results: list[DecisionResultOut]
    open_tickets: list[TicketOut]
    run: RunOut


class CancelIn(RequestModel):
    """Why the run is cancelled."""

    model_config = {"json_schema_extra": {"examples": [{"reason": "Wrong customer"}]}}

    reason: Str | None = Field(None, max_length=2000)


class PauseIn(RequestModel):
    """Why the run is paused."""

    model_config = {"json_schema_extra": {"examples": [{"reason": "Maintenance until 14:00"}]}}

    reason: Str | None = Field(None, max_length=2000)


class RetryIn(LimitedRequest):
    """Options of the new run. Without `limits` it gets those of the failed run."""

    model_config = {"json_schema_extra": {"examples": [{"agent_version": "current"}]}}

    agent_version: VersionOfAgent = Field(
        VersionOfAgent.SAME,
        description="`same`: the agent version of the failed run. `current`: the newest version.",
    )
