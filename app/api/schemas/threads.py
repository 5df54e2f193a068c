"""Threads: requests, and how they are shown."""

from typing import Any

from pydantic import AliasChoices, Field

from app.api.schemas.common import Metadata, RequestModel, ResponseModel, Str, Time, Uuid
from app.domain.threads.threads import Thread


class ThreadIn(RequestModel):
    """A new thread."""

    model_config = {"json_schema_extra": {"examples": [{"title": "Spring cleaning"}]}}

    thread_id: Uuid | None = Field(
        None,
        validation_alias=AliasChoices("thread_id", "threadId"),
        description="Your id for the thread.",
    )
    title: Str | None = Field(None, max_length=500)
    resource_id: Str | None = Field(
        None,
        validation_alias=AliasChoices("resource_id", "resourceId"),
        max_length=500,
        description="An id of your own system. Lists can be filtered by it.",
    )
    parent_thread_id: Uuid | None = None
    metadata: Metadata = Field(default_factory=dict)


class ThreadChange(RequestModel):
    """Fields to change. Absent fields stay as they are, null clears."""

    model_config = {"json_schema_extra": {"examples": [{"title": "Spring cleaning"}]}}

    title: Str | None = Field(None, max_length=500)
    resource_id: Str | None = Field(
        None, validation_alias=AliasChoices("resource_id", "resourceId"), max_length=500
    )
    metadata: Metadata | None = None


class ThreadOut(ResponseModel):
    """A conversation: a log of messages, and the runs that read and write it."""

    thread_id: str
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


def thread_out(thread: Thread) -> ThreadOut:
    return ThreadOut(
        thread_id=thread.id,
        title=thread.title,
        resource_id=thread.resource_id,
        parent_thread_id=thread.parent_thread_id,
        metadata=dict(thread.metadata),
        open_run_id=thread.open_run_id,
        latest_run_id=thread.latest_run_id,
        queue_length=thread.queue_length,
        message_count=thread.next_message_seq - 1,
        created_at=thread.created_at,
        updated_at=thread.updated_at,
    )
