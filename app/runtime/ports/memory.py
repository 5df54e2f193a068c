"""The memory that an agent keeps across runs, as tools and plugins use it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from app.domain.errors import MemoryUnavailable
from app.domain.ids import AgentId
from app.domain.json_values import Json, canonical
from app.domain.memories.checks import checked_key
from app.domain.memories.memories import MemoryEntry, MemoryOwner
from app.domain.memories.writes import MemoryWrite

MAX_FOUND = 50
"""Of one search or list."""


class MemoryStore(Protocol):
    """The memories of a tenant. Writes are those of one run or background task, and fenced."""

    async def get(self, owner: MemoryOwner, key: str) -> MemoryEntry | None: ...

    async def newest(self, owner: MemoryOwner, limit: int) -> Sequence[MemoryEntry]: ...

    async def search(self, owner: MemoryOwner, query: str, limit: int) -> Sequence[MemoryEntry]: ...

    async def save(self, owner: MemoryOwner, write: MemoryWrite) -> None:
        """Save a value, unless an execution of the call has done this write before."""

    async def delete(self, owner: MemoryOwner, write: MemoryWrite) -> bool:
        """Delete a value once. True if this write has deleted it, now or before."""


@dataclass(frozen=True, slots=True)
class MemoryReader:
    """The memories that an agent uses in a run, for reading."""

    store: MemoryStore = field(repr=False)
    known_owner: MemoryOwner | None
    """None if the run names no user, and the agent's memories are those of users."""

    @property
    def owner(self) -> MemoryOwner:
        if self.known_owner is None:
            raise MemoryUnavailable(
                "this run names no user: its start must send one in `context`, which needs the scope runs:context"
            )
        return self.known_owner

    async def get(self, key: str, default: Json = None) -> Json:
        """The value under a key."""
        found = await self.store.get(self.owner, checked_key(key))
        return default if found is None else found.value

    async def search(self, query: str, *, limit: int = 10) -> Sequence[MemoryEntry]:
        """The memories that have a word of the query, those that fit best first."""
        return await self.store.search(self.owner, query, _bounded(limit))

    async def newest(self, *, limit: int = 10) -> Sequence[MemoryEntry]:
        """The memories that were changed last, the newest first."""
        return await self.store.newest(self.owner, _bounded(limit))


@dataclass(frozen=True, slots=True)
class Memory(MemoryReader):
    """The memories that an agent uses, for a running call. Each write is done once, also after a crash.

    Writes are committed at once, and stay if the call fails later.
    """

    agent_id: AgentId
    idempotency_key: str
    _equal_writes: Counter[str] = field(default_factory=Counter, repr=False, compare=False)

    async def set(self, key: str, value: Json) -> None:
        """Save a value under a key, in place of the value that is there."""
        await self.store.save(self.owner, self._write("set", key, value))

    async def delete(self, key: str) -> bool:
        """Delete the value under a key. False if there was none."""
        return await self.store.delete(self.owner, self._write("delete", key))

    def _write(
        self, operation: Literal["set", "delete"], key: str, value: Json = None
    ) -> MemoryWrite:
        name = canonical([operation, checked_key(key), value])
        self._equal_writes[name] += 1
        return MemoryWrite(
            agent_id=self.agent_id,
            idempotency_key=self.idempotency_key,
            operation=operation,
            key=key,
            value=value,
            number=self._equal_writes[name],
        )


def _bounded(limit: int) -> int:
    return max(1, min(limit, MAX_FOUND))
