"""Threads: requests, and how they are shown."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from app.api.schemas.common import Metadata, RequestModel, ResponseModel, Str, Time, Uuid, is_absent
from app.api.schemas.messages import MessageOut
from app.api.schemas.runs.run import RunOut
from app.api.schemas.runs.snapshot import OpenOutput
from app.api.schemas.thread_names import ThreadKey, ThreadNamed, named_thread
from app.domain.ids import Tenant, ThreadId
from app.domain.threads.threads import ListedThread


class ThreadIn(ThreadNamed):
    """A new thread."""

    model_config = {
        "json_schema_extra": {
            "examples": [{"thread_key": "customer-17", "title": "Spring cleaning"}]
        }
    }

    thread_id: Uuid | None = Field(
        None,
        description="Your id for the thread.",
    )
    title: Str | None = Field(None, max_length=500)
    resource_id: Str | None = Field(
        None,
        max_length=500,
        description="An id of your own system. Lists can be filtered by it.",
    )
    parent_thread_id: Uuid | None = None
    parent_thread_key: ThreadKey | None = Field(
        None, description="Key of the parent thread, instead of `parent_thread_id`."
    )
    metadata: Metadata = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_one_parent(self) -> Self:
        if self.parent_thread_id is not None and self.parent_thread_key is not None:
            raise ValueError("send `parent_thread_id` or `parent_thread_key`, not both")
        return self

    def parent_in(self, tenant: Tenant) -> ThreadId | None:
        return named_thread(tenant, self.parent_thread_id, self.parent_thread_key)


class ThreadChange(RequestModel):
    """Fields to change. Absent fields stay as they are, null clears."""

    model_config = {"json_schema_extra": {"examples": [{"title": "Spring cleaning"}]}}

    title: Str | None = Field(None, max_length=500)
    resource_id: Str | None = Field(None, max_length=500)
    metadata: Metadata | None = None


class ThreadOut(ResponseModel):
    """A conversation: a log of messages, and the runs that read and write it."""

    id: str
    key: str | None = Field(
        description="Your own name of the thread, `thread_key` in requests; null for a thread without one."
    )
    title: str | None
    resource_id: str | None
    parent_thread_id: str | None
    metadata: dict[str, Any]
    open_run_id: str | None = Field(
        description="The run that occupies the thread; null if none does."
    )
    latest_run_id: str | None
    queue_length: int = Field(description="Number of queued runs.")
    message_count: int
    created_at: Time
    updated_at: Time


class MessagePreviewOut(ResponseModel):
    """The beginning of a message."""

    role: Literal["user", "assistant"]
    text: str
    created_at: Time


class ListedThreadOut(ThreadOut):
    """A thread in a list."""

    last_run_at: Time | None = Field(
        None,
        exclude_if=is_absent,
        description="When its last run was created. Only with `sort=last_run_at`.",
    )
    last_message: MessagePreviewOut | None = Field(
        None,
        exclude_if=is_absent,
        description="The beginning of the newest message of a user or the agent. Only with "
        "`include=last_message`.",
    )
    first_message: MessagePreviewOut | None = Field(
        None,
        exclude_if=is_absent,
        description="The beginning of the first message of a user. Only with `include=first_message`.",
    )


def listed_thread_out(found: ListedThread) -> ListedThreadOut:
    last, first = found.last_message, found.first_message
    return ListedThreadOut(
        **ThreadOut.model_validate(found.thread).__dict__,
        last_run_at=found.last_run_at,
        last_message=None if last is None else MessagePreviewOut.model_validate(last),
        first_message=None if first is None else MessagePreviewOut.model_validate(first),
    )


class ThreadSnapshotHead(OpenOutput):
    """A thread's snapshot without its messages."""

    thread: ThreadOut = Field(description="The thread.")
    run: RunOut | None = Field(description="The run that occupies the thread; null if none does.")


class ThreadSnapshotOut(ThreadSnapshotHead):
    """All that a client needs to show a thread. Follow its events after `last_event_id`."""

    messages: list[MessageOut]
