"""Requests and answers about a whole thread: cancel and fork."""

from pydantic import Field, model_validator
from pydantic.config import JsonDict

from app.api.included import Included
from app.api.schemas.common import Metadata, ResponseModel, Str, Uuid
from app.api.schemas.runs.run import RunOut, run_out
from app.api.schemas.thread_names import ThreadNamed
from app.clock import new_id
from app.commands.threads.cancel_thread import ThreadCancelAnswer
from app.commands.threads.fork import ForkRequest
from app.domain.ids import RunId, Tenant, ThreadId

_EXAMPLE: JsonDict = {"to_seq": 4, "title": "Another way"}


class ThreadCancelled(ResponseModel):
    """Result of cancelling a thread, without its runs."""

    thread_id: str
    is_settled: bool = Field(description="Whether all of its runs have ended.")


class ThreadCancelOut(ThreadCancelled):
    """Result of cancelling a thread."""

    runs: list[RunOut] = Field(description="The runs that hadn't ended, oldest first.")


def thread_cancel_out(answer: ThreadCancelAnswer, included: Included) -> ThreadCancelOut:
    return ThreadCancelOut(
        thread_id=answer.thread_id,
        is_settled=answer.is_settled,
        runs=[run_out(run, included) for run in answer.runs],
    )


class ForkIn(ThreadNamed):
    """Where the copy ends. By default it has the whole log."""

    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}

    thread_id: Uuid | None = Field(
        None,
        description="Your id for the new thread.",
    )
    to_seq: int | None = Field(
        None, ge=1, le=2**63 - 1, strict=True, description="Position of the last message to copy."
    )
    run_id: Uuid | None = Field(
        None,
        description="A finished run. The copy ends with its last message.",
    )
    title: Str | None = Field(None, max_length=500)
    resource_id: Str | None = Field(None, max_length=500)
    metadata: Metadata | None = None

    @model_validator(mode="after")
    def _one_end(self) -> "ForkIn":
        if self.to_seq is not None and self.run_id is not None:
            raise ValueError("send `to_seq` or `run_id`, not both")
        return self

    def to_domain(self, tenant: Tenant) -> ForkRequest:
        return ForkRequest(
            thread_id=self.thread_in(tenant) or ThreadId(new_id()),
            thread_key=self.thread_key,
            to_seq=self.to_seq,
            run_id=None if self.run_id is None else RunId(self.run_id),
            title=self.title,
            resource_id=self.resource_id,
            metadata=self.metadata,
        )
