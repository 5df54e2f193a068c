"""What is done to a thread as a whole: cancelled, copied, measured."""

from pydantic import AliasChoices, Field, model_validator
from pydantic.config import JsonDict

from app.api.schemas.common import Metadata, RequestModel, ResponseModel, Str, Uuid
from app.api.schemas.runs import RunOut, run_out
from app.clock import new_id
from app.commands.threads.cancel_thread import ThreadCancelAnswer
from app.commands.threads.fork import ForkRequest
from app.domain.ids import RunId, ThreadId
from app.domain.threads.threads import ThreadSize

_EXAMPLE: JsonDict = {"from_seq": 4, "title": "Another way"}


class ThreadCancelled(ResponseModel):
    """What became of a thread, without its runs."""

    thread_id: str
    is_settled: bool = Field(description="Whether all of them have ended.")


class ThreadCancelOut(ThreadCancelled):
    """What became of a thread and of its runs."""

    runs: list[RunOut] = Field(description="Those that hadn't ended, in the order of their starts.")


def thread_cancel_out(answer: ThreadCancelAnswer) -> ThreadCancelOut:
    return ThreadCancelOut(
        thread_id=answer.thread_id,
        is_settled=answer.is_settled,
        runs=[run_out(run) for run in answer.runs],
    )


class ForkIn(RequestModel):
    """Where the copy ends; the whole log when nothing is named."""

    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}

    thread_id: Uuid | None = Field(
        None,
        validation_alias=AliasChoices("thread_id", "threadId"),
        description="Your own id for the new thread.",
    )
    from_seq: int | None = Field(
        None, ge=1, le=2**63 - 1, strict=True, description="The last message that the copy has."
    )
    run_id: Uuid | None = Field(
        None,
        validation_alias=AliasChoices("run_id", "runId"),
        description="A run that is done: the copy ends where it has.",
    )
    title: Str | None = Field(None, max_length=500)
    resource_id: Str | None = Field(
        None, validation_alias=AliasChoices("resource_id", "resourceId"), max_length=500
    )
    metadata: Metadata | None = None

    @model_validator(mode="after")
    def _one_end(self) -> "ForkIn":
        if self.from_seq is not None and self.run_id is not None:
            raise ValueError("name a from_seq or a run_id, not both")
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


class TableSizeOut(ResponseModel):
    table: str
    rows: int
    bytes: int


class SavedOut(ResponseModel):
    rows: int
    bytes: int


class StorageOut(ResponseModel):
    """What a thread takes, as stored: without indexes, and compressed where it is."""

    thread_id: str
    rows: int
    bytes: int
    tables: list[TableSizeOut]
    saved: SavedOut = Field(
        description="What its events would take besides if the pieces of each message hadn't become one."
    )


def storage_out(thread_id: ThreadId, size: ThreadSize) -> StorageOut:
    return StorageOut(
        thread_id=thread_id,
        rows=sum(one.rows for one in size.tables),
        bytes=sum(one.size for one in size.tables),
        tables=[
            TableSizeOut(table=one.table, rows=one.rows, bytes=one.size) for one in size.tables
        ],
        saved=SavedOut(rows=size.saved_rows, bytes=size.saved_size),
    )
