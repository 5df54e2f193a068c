"""The poison guard: a process executes at most one run or task that has lost several workers.

Such a suspect may be what kills its workers. A harmless run in the same process is lost as often, until
both are suspects. From then on they never share a process, so only the guilty one reaches the limit.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias, TypeVar

from app.domain.ids import RunId, TaskId, Tenant

T = TypeVar("T")
Key: TypeAlias = tuple[Tenant, RunId | TaskId]

MAX_LOSSES = 5
"""Workers that may be lost over a task, or a run without progress, before it fails."""
SUSPECT_LOSSES = range(3, MAX_LOSSES + 1)
"""Losses that make a run or task a suspect."""


class PoisonGuard:
    """The suspect of one process."""

    def __init__(self) -> None:
        self._suspect: Key | None = None
        """The suspect that is executed here; during a claim also the key that is being claimed."""

    async def claim(
        self,
        key: Key,
        claim: Callable[[Collection[int]], Awaitable[T | None]],
        losses: Callable[[T], int],
    ) -> T | None:
        """Claim a run or a task. While this process has a suspect, `claim` gets the loss counts to skip."""
        has_one = self._suspect is not None
        if not has_one:
            self._suspect = key
        claimed: T | None = None
        try:
            claimed = await claim(SUSPECT_LOSSES if has_one else ())
        finally:
            if not has_one and (claimed is None or losses(claimed) not in SUSPECT_LOSSES):
                self._suspect = None
        return claimed

    def dismiss(self, key: Key) -> None:
        """The run or task has ended here or made progress: it is no suspect any more."""
        if self._suspect == key:
            self._suspect = None
