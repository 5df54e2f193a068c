"""Memories in requests and responses."""

from typing import Annotated, Any, Self

from fastapi import Path
from pydantic import Field

from app.api.schemas.common import JsonValue, RequestModel, ResponseModel, Time
from app.domain.json_values import Json
from app.domain.memories.checks import KEY_PATTERN
from app.domain.memories.deletions import MemoryDeletion
from app.domain.memories.memories import MemoryEntry, MemoryOwner, MemoryScope

MemoryKey = Annotated[
    str, Path(pattern=KEY_PATTERN, max_length=100, description="Key of the memory.")
]

_EXAMPLE: dict[str, Any] = {
    "id": "01932c07-2b6a-7c3e-9d4f-6a1b2c3d4e5f",
    "scope": "subject",
    "subject": "ann",
    "key": "favourite_colour",
    "value": "Ann's favourite colour is green.",
    "size": 48,
    "agent_id": "support",
    "run_id": "01932c07-2b6a-7c3e-9d4f-0123456789ab",
    "saved_by": "ann",
    "created_at": "2026-01-31T09:30:00Z",
    "updated_at": "2026-01-31T09:30:00Z",
}


class MemoryIn(RequestModel):
    """The value to keep under the key."""

    model_config = {
        "json_schema_extra": {"examples": [{"value": "Ann's favourite colour is green."}]}
    }

    value: JsonValue = Field(description="Any JSON; agents save texts.")


class MemoryOut(ResponseModel):
    """A memory: what agents keep across runs under a key of its owner."""

    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}

    id: str
    scope: MemoryScope = Field(description="Kind of the owner.")
    subject: str | None = Field(
        description="The subject, the user or the agent whose memory it is; null for the whole tenant."
    )
    key: str = Field(description="Key of the memory, unique within its owner.")
    value: JsonValue = Field(description="The value: a text if an agent's own tool saved it.")
    size: int = Field(description="Bytes of the key and the value.")
    agent_id: str | None = Field(
        description="The agent that saved the value; null if a client did."
    )
    run_id: str | None = Field(description="The run that saved the value; null if a client did.")
    saved_by: str = Field(
        description="Subject that saved the value, or that started the run which did."
    )
    created_at: Time
    updated_at: Time

    @classmethod
    def of(cls, entry: MemoryEntry) -> Self:
        value: Json = entry.value
        return cls(
            id=entry.id,
            scope=entry.owner.scope,
            subject=_subject_of(entry.owner),
            key=entry.key,
            value=value,
            size=entry.size,
            agent_id=entry.agent_id,
            run_id=entry.run_id,
            saved_by=entry.saved_by,
            created_at=entry.created_at,
            updated_at=entry.updated_at,
        )


class MemoriesDeletedOut(ResponseModel):
    """How many memories were deleted."""

    model_config = {"json_schema_extra": {"examples": [{"deleted": 12}]}}

    deleted: int = Field(description="Number of deleted memories.")


class MemoryDeletionOut(ResponseModel):
    """A deletion of memories, without what they were."""

    id: str
    scope: MemoryScope = Field(description="Kind of the owner.")
    subject: str | None = Field(
        description="The subject, the user or the agent whose memories they were; null for the whole tenant."
    )
    count: int = Field(description="Number of deleted memories.")
    deleted_by: str = Field(
        description="Subject that deleted them, or that started the run whose tool did."
    )
    run_id: str | None = Field(
        description="The run whose tool deleted the memory; null if a client did."
    )
    created_at: Time

    @classmethod
    def of(cls, deletion: MemoryDeletion) -> Self:
        return cls(
            id=deletion.id,
            scope=deletion.owner.scope,
            subject=_subject_of(deletion.owner),
            count=deletion.count,
            deleted_by=deletion.deleted_by,
            run_id=deletion.run_id,
            created_at=deletion.created_at,
        )


def _subject_of(owner: MemoryOwner) -> str | None:
    return owner.subject or None
