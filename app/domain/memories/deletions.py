"""A deletion of memories, as the audit keeps it."""

from datetime import datetime

from msgspec import Struct

from app.domain.ids import RunId
from app.domain.memories.memories import MemoryOwner


class MemoryDeletion(Struct, frozen=True, kw_only=True):
    """Whose memories were deleted, how many, and by whom. The keys and values are gone."""

    id: str
    owner: MemoryOwner
    count: int
    deleted_by: str
    run_id: RunId | None
    """The run whose tool deleted them; None if a client did."""
    created_at: datetime
