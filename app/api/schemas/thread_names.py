"""How requests name a thread: by its id, or by the client's own key."""

from typing import Annotated, Self

from fastapi import Query
from msgspec import Struct
from pydantic import Field, model_validator

from app.api.schemas.common import RequestModel, Str, Uuid
from app.domain.errors import Invalid
from app.domain.ids import Tenant, ThreadId
from app.domain.threads.keys import MAX_THREAD_KEY_LENGTH, thread_id_of_key

ThreadKey = Annotated[Str, Field(min_length=1, max_length=MAX_THREAD_KEY_LENGTH)]


class ThreadNamed(RequestModel):
    """A request that may name a thread. Subclasses say what its id means to them."""

    thread_id: Uuid | None = Field(None, description="Id of a thread.")
    thread_key: ThreadKey | None = Field(
        None,
        description="Your own name of the thread, instead of `thread_id`: any text, such as `customer-17`.",
    )

    @model_validator(mode="after")
    def _has_one_name(self) -> Self:
        if self.thread_id is not None and self.thread_key is not None:
            raise ValueError("send `thread_id` or `thread_key`, not both")
        return self

    def thread_in(self, tenant: Tenant) -> ThreadId | None:
        """The id of the named thread; None if the request names none."""
        return named_thread(tenant, self.thread_id, self.thread_key)


class ThreadQuery(Struct, frozen=True):
    """Filters a list by a thread, named by its id or its key."""

    thread_id: Annotated[Uuid | None, Query(description="Only of this thread.")] = None
    thread_key: Annotated[
        ThreadKey | None, Query(description="Only of the thread with this `thread_key`.")
    ] = None

    def thread_in(self, tenant: Tenant) -> ThreadId | None:
        if self.thread_id is not None and self.thread_key is not None:
            raise Invalid(
                "invalid_request", "query.thread_key: send `thread_id` or `thread_key`, not both."
            )
        return named_thread(tenant, self.thread_id, self.thread_key)


def named_thread(tenant: Tenant, thread_id: str | None, key: str | None) -> ThreadId | None:
    """The id of the thread that has this id or this key; None without either."""
    if key is not None:
        return thread_id_of_key(tenant, key)
    return None if thread_id is None else ThreadId(thread_id)
