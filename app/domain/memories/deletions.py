"""A deletion of memories, as the audit keeps it."""

from dataclasses import dataclass
from datetime import datetime

from app.domain.ids import RunId
from app.domain.memories.memories import MemoryOwner


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDeletion:
    """Whose memories were deleted, how many, and by whom. The keys and values are gone."""

    id: str
    owner: MemoryOwner
    count: int
    deleted_by: str
    run_id: RunId | None
    """The run whose tool deleted them; None if a client did."""
    created_at: datetime
