"""The poison guard: a process executes at most one run or task that has lost several workers.

Such a suspect may be what kills its workers. A harmless run in the same process is lost as often, until
both are suspects. From then on they never share a process, so only the guilty one reaches the limit.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from app.domain.ids import RunId, TaskId, Tenant

Key: TypeAlias = tuple[Tenant, RunId | TaskId]

MAX_LOSSES = 5
"""Workers that may be lost over a task, or a run without progress, before it fails."""
SUSPECT_LOSSES = range(3, MAX_LOSSES + 1)
"""Losses that make a run or task a suspect."""


@dataclass(slots=True)
class GuardedClaim:
    """A claim while it is made."""

    losses_to_skip: Collection[int]
    """The claim must skip runs and tasks with so many losses."""
    losses: int | None = None
    """Set by the block: the losses of what it has claimed; None if it got nothing."""


class PoisonGuard:
    """The suspect of one process."""

    def __init__(self) -> None:
        self._suspect: Key | None = None
        """The suspect that is executed here; during a claim also the key that is being claimed."""

    @contextmanager
    def claiming(self, key: Key) -> Iterator[GuardedClaim]:
        """Claim a run or a task in this block. While this process has a suspect, it must skip other suspects."""
        if self._suspect is not None:
            yield GuardedClaim(SUSPECT_LOSSES)
            return
        self._suspect = key
        claim = GuardedClaim(())
        try:
            yield claim
        finally:
            if claim.losses not in SUSPECT_LOSSES:
                self._suspect = None

    def dismiss(self, key: Key) -> None:
        """The run or task has ended here or made progress: it is no suspect any more."""
        if self._suspect == key:
            self._suspect = None
