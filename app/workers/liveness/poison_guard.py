"""Suspicion: what has cost several workers may be what kills them. A process executes one such run or task
at a time, so that it takes no other one along that is only unlucky.

Whoever shares a process with what kills it loses it as often, until both are suspicious: from then on they
don't share one, and only who is to blame comes to the limit.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias, TypeVar

from app.domain.ids import RunId, TaskId, Tenant

T = TypeVar("T")
Key: TypeAlias = tuple[Tenant, RunId | TaskId]

MAX_LOSSES = 5
"""Workers that may be lost over a run without any progress, or over a task, before it is given up."""
SUSPECT_LOSSES = range(3, MAX_LOSSES + 1)
"""So many lost workers are no coincidence."""


class PoisonGuard:
    """Of one process."""

    def __init__(self) -> None:
        self._suspect: Key | None = None
        """What is executed here and has cost several workers; while something is being claimed, it may be
        that."""

    async def claim(
        self,
        key: Key,
        claim: Callable[[Collection[int]], Awaitable[T | None]],
        losses: Callable[[T], int],
    ) -> T | None:
        """Claim a run or a task, unless it is a second suspect: `claim` is told of which losses it mustn't
        be."""
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
        """It has ended here, or is above suspicion by now."""
        if self._suspect == key:
            self._suspect = None
