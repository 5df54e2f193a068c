"""Who may see and change which memories over HTTP."""

from app.domain.errors import NotFound
from app.domain.memories.memories import MemoryOwner, MemoryScope
from app.domain.principals import Principal, Scope


def own(principal: Principal) -> MemoryOwner:
    """The owner of the memories of runs that the caller starts."""
    return MemoryOwner(MemoryScope.SUBJECT, principal.subject)


def require_owner(principal: Principal, owner: MemoryOwner | None) -> None:
    """Refuse a caller that may not use these memories; None means those of all owners."""
    if owner != own(principal):
        principal.require(Scope.MEMORIES_ALL)
    elif not principal.may(Scope.MEMORIES_ALL):
        principal.require(Scope.MEMORIES_OWN)


def memory_not_found() -> NotFound:
    return NotFound(
        "memory_not_found", "There is no memory under this key. GET /v1/memories lists the keys."
    )
