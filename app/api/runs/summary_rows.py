"""Runs as rows of a table."""

from typing import Literal

from pydantic import Field

from app.api.schemas.common import ResponseModel, Time
from app.api.schemas.limits import UsedOut
from app.domain.runs.limits import used_by
from app.domain.runs.runs import Done, Waiting
from app.domain.runs.terminations import outcome, termination_to_json
from app.queries.run_summaries import RunSummary


class WaitingSummaryOut(ResponseModel):
    """What a run waits for."""

    reason: str
    needs_decision: bool = Field(
        description="Whether a person has to decide a ticket, or to resume a paused run."
    )


class RunSummaryOut(ResponseModel):
    """A run without what it wrote, and with the beginning of what it was asked."""

    id: str
    thread_id: str
    agent_id: str
    agent_version: str
    parent_run_id: str | None
    root_run_id: str
    retry_of_run_id: str | None = Field(description="The run that this one retries.")
    child_runs: int = Field(description="The number of runs that it has started. It ends at 1,000.")
    status: Literal["created", "running", "waiting", "done"]
    outcome: str | None = Field(description="How the run ended; null before that.")
    termination_code: str | None = Field(description="Code of an error or limit that ended it.")
    waiting: WaitingSummaryOut | None = Field(description="What the run waits for.")
    open_tickets: int = Field(description="Open tickets of the run itself that a person decides.")
    cancel_requested_at: Time | None
    is_paused: bool = Field(description="Whether the run has a pause request and isn't done.")
    input_preview: str = Field(
        description="The beginning of the first message that the run was started with."
    )
    steps: int
    input_tokens: int
    output_tokens: int
    used: UsedOut
    started_by: str
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    updated_at: Time


def run_summary_out(found: RunSummary) -> RunSummaryOut:
    run, state = found.run, found.run.state
    ended = state.termination if isinstance(state, Done) else None
    return RunSummaryOut(
        id=run.id,
        thread_id=run.thread_id,
        agent_id=run.agent_id,
        agent_version=run.agent_version,
        parent_run_id=run.lineage.parent_run_id,
        root_run_id=run.lineage.root_run_id,
        retry_of_run_id=run.lineage.retry_of,
        child_runs=found.details.children,
        status=run.status.value,
        outcome=None if ended is None else outcome(ended).value,
        termination_code=None if ended is None else termination_to_json(ended).get("code"),
        waiting=_waiting(found, state) if isinstance(state, Waiting) else None,
        open_tickets=found.open_tickets,
        cancel_requested_at=run.cancel_requested_at,
        is_paused=ended is None and run.pause is not None,
        input_preview=found.details.preview,
        steps=run.steps,
        input_tokens=run.usage.input_tokens,
        output_tokens=run.usage.output_tokens,
        used=UsedOut.model_validate(used_by(run)),
        started_by=run.started_by,
        created_at=run.created_at,
        started_at=run.started_at,
        finished_at=state.finished_at if isinstance(state, Done) else None,
        updated_at=run.updated_at,
    )


def _waiting(found: RunSummary, state: Waiting) -> WaitingSummaryOut:
    return WaitingSummaryOut(
        reason=state.reason.value,
        needs_decision=found.needs_decision,
    )
