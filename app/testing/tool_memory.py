"""What agents keep across the runs of a thread in memory. The search is by whole words, without stems."""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from app.clock import new_id
from app.domain.errors import OwnershipLost
from app.domain.json_values import Json
from app.domain.memories.checks import check_space, check_value, size_of, text_of
from app.domain.memories.memories import MemoryEntry, MemoryLimits, MemoryOwner
from app.domain.memories.writes import MemoryWrite
from app.domain.redaction import unredacted
from app.testing.thread_rows import ThreadRows

_WORD = re.compile(r"[^\W_]+")
_LIMITS = MemoryLimits()


class MemoriesOfThread:
    """The memories of all owners. Each owner begins with the same ones."""

    def __init__(self, rows: ThreadRows, initial: Mapping[str, Json]) -> None:
        self.rows = rows
        self.done: list[MemoryWrite] = []
        self._initial = initial
        self._kept: dict[MemoryOwner, dict[str, MemoryEntry]] = {}

    def values(self) -> dict[str, Json]:
        """The values of all owners by key."""
        if not self._kept:
            return dict(self._initial)
        return {key: one.value for kept in self._kept.values() for key, one in kept.items()}

    def of(self, owner: MemoryOwner) -> dict[str, MemoryEntry]:
        if owner not in self._kept:
            self._kept[owner] = {}
            for key, value in self._initial.items():
                self.put(owner, key, value)
        return self._kept[owner]

    def put(self, owner: MemoryOwner, key: str, value: Json, by: MemoryWrite | None = None) -> None:
        kept, now = self.of(owner), self.rows.clock.now()
        kept[key] = MemoryEntry(
            id=new_id(),
            owner=owner,
            key=key,
            value=value,
            size=size_of(key, value),
            agent_id=None if by is None else by.agent_id,
            run_id=None if by is None else self.rows.record.id,
            saved_by=self.rows.record.started_by,
            created_at=kept[key].created_at if key in kept else now,
            updated_at=now,
        )


class MemoriesInMemory(Struct, frozen=True):
    """What the tools of one attempt use. It writes nothing once another attempt owns the run."""

    memories: MemoriesOfThread
    attempt: int

    async def get(self, owner: MemoryOwner, key: str) -> MemoryEntry | None:
        return self.memories.of(owner).get(key)

    async def newest(self, owner: MemoryOwner, limit: int) -> Sequence[MemoryEntry]:
        return _newest_first(self.memories.of(owner).values())[:limit]

    async def search(self, owner: MemoryOwner, query: str, limit: int) -> Sequence[MemoryEntry]:
        wanted = _words(query)
        fitting = [one for one in self.memories.of(owner).values() if wanted & _words_of(one)]
        best = sorted(_newest_first(fitting), key=lambda one: -len(wanted & _words_of(one)))
        return best[:limit]

    async def save(self, owner: MemoryOwner, write: MemoryWrite) -> None:
        if self._is_new(write):
            check_value(write.key, write.value, _LIMITS, unredacted)
            kept = self.memories.of(owner)
            others = [one.size for key, one in kept.items() if key != write.key]
            size = size_of(write.key, write.value)
            check_space(len(others) + 1, sum(others) + size, _LIMITS)
            self.memories.done.append(write)
            self.memories.put(owner, write.key, write.value, write)

    async def delete(self, owner: MemoryOwner, write: MemoryWrite) -> bool:
        if not self._is_new(write):
            return True
        was_there = self.memories.of(owner).pop(write.key, None) is not None
        if was_there:
            self.memories.done.append(write)
        return was_there

    def _is_new(self, write: MemoryWrite) -> bool:
        record = self.memories.rows.record
        if record.attempt != self.attempt:
            raise OwnershipLost(record.id)
        return write not in self.memories.done


def _newest_first(entries: Iterable[MemoryEntry]) -> list[MemoryEntry]:
    return sorted(entries, key=lambda one: (one.updated_at, one.id), reverse=True)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def _words_of(entry: MemoryEntry) -> set[str]:
    return _words(f"{entry.key} {text_of(entry.value)}")
