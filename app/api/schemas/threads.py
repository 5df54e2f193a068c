"""Threads, as clients make and read them."""

from typing import Any

from pydantic import AliasChoices, Field

from app.api.schemas.common import Metadata, RequestModel, ResponseModel, Str, Time, Uuid
from app.domain.threads.threads import Thread


class ThreadIn(RequestModel):
    model_config = {"json_schema_extra": {"examples": [{"title": "Spring cleaning"}]}}

    thread_id: Uuid | None = Field(
        None,
        validation_alias=AliasChoices("thread_id", "threadId"),
        description="Your own id for it.",
    )
    title: Str | None = Field(None, max_length=500)
    resource_id: Str | None = Field(
        None,
        validation_alias=AliasChoices("resource_id", "resourceId"),
        max_length=500,
        description="What it is about in your own system; lists can be filtered by it.",
    )
    parent_thread_id: Uuid | None = None
    metadata: Metadata = Field(default_factory=dict)


class ThreadChange(RequestModel):
    """What to change; what isn't named stays, null clears."""

    title: Str | None = Field(None, max_length=500)
    resource_id: Str | None = Field(
        None, validation_alias=AliasChoices("resource_id", "resourceId"), max_length=500
    )
    metadata: Metadata | None = None


class ThreadOut(ResponseModel):
    thread_id: str
    title: str | None
    resource_id: str | None
    parent_thread_id: str | None
    metadata: dict[str, Any]
    open_run_id: str | None = Field(description="The run that occupies it: running or waiting.")
    latest_run_id: str | None
    queue_length: int = Field(description="Runs that wait for their turn.")
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
