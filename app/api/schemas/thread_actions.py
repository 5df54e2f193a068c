"""Requests and answers about a whole thread: cancel and fork."""

from pydantic import AliasChoices, Field, model_validator
from pydantic.config import JsonDict

from app.api.schemas.common import Metadata, RequestModel, ResponseModel, Str, Uuid
from app.api.schemas.runs import RunOut, run_out
from app.clock import new_id
from app.commands.threads.cancel_thread import ThreadCancelAnswer
from app.commands.threads.fork import ForkRequest
from app.domain.ids import RunId, ThreadId

_EXAMPLE: JsonDict = {"from_seq": 4, "title": "Another way"}


class ThreadCancelled(ResponseModel):
    """Result of cancelling a thread, without its runs."""

    thread_id: str
    is_settled: bool = Field(description="Whether all of its runs have ended.")


class ThreadCancelOut(ThreadCancelled):
    """Result of cancelling a thread."""

    runs: list[RunOut] = Field(description="The runs that hadn't ended, oldest first.")


def thread_cancel_out(answer: ThreadCancelAnswer) -> ThreadCancelOut:
    return ThreadCancelOut(
        thread_id=answer.thread_id,
        is_settled=answer.is_settled,
        runs=[run_out(run) for run in answer.runs],
    )


class ForkIn(RequestModel):
    """Where the copy ends. By default it has the whole log."""

    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}

    thread_id: Uuid | None = Field(
        None,
        validation_alias=AliasChoices("thread_id", "threadId"),
        description="Your id for the new thread.",
    )
    from_seq: int | None = Field(
        None, ge=1, le=2**63 - 1, strict=True, description="Position of the last message to copy."
    )
    run_id: Uuid | None = Field(
        None,
        validation_alias=AliasChoices("run_id", "runId"),
        description="A finished run. The copy ends with its last message.",
    )
    title: Str | None = Field(None, max_length=500)
    resource_id: Str | None = Field(
        None, validation_alias=AliasChoices("resource_id", "resourceId"), max_length=500
    )
    metadata: Metadata | None = None

    @model_validator(mode="after")
    def _one_end(self) -> "ForkIn":
        if self.from_seq is not None and self.run_id is not None:
            raise ValueError("send `from_seq` or `run_id`, not both")
        return self

    def to_domain(self) -> ForkRequest:
        return ForkRequest(
            thread_id=ThreadId(self.thread_id or new_id()),
            from_seq=self.from_seq,
            run_id=None if self.run_id is None else RunId(self.run_id),
            title=self.title,
            resource_id=self.resource_id,
            metadata=self.metadata,
        )
